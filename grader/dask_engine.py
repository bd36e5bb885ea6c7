"""An engine on a Dask cluster: each submission is one task, made of plain data, on whichever worker is free.

A worker process keeps warm examiners for as long as the run lasts. A worker that dies costs the job it had,
which is run once more; a job whose worker dies twice is a failure of the grader.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import signal
import socket
import threading
import uuid
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

from distributed import Client, Future, KilledWorker, LocalCluster, get_worker
from distributed.diagnostics.plugin import WorkerPlugin
from distributed.utils import silence_logging_cmgr
from distributed.worker import Worker
from pydantic import TypeAdapter

from grader.course import CourseError, Lab, find_root, load_course
from grader.engine import Begin, Examiners, WorkItem, failed
from grader.grading import key_of, versions
from grader.limits import Limits
from grader.verdicts import one_line
from grader.worker import Judgement

TICK = 1.0  # seconds after which the number of workers is asked for again
CONNECT_SECONDS = 20.0
WORKER_SECONDS = 60.0  # until the first worker must be there
DEATHS = 2  # of workers, that one job may cause
LOOPBACK = "127.0.0.1"

_JUDGEMENT = TypeAdapter(Judgement)
_Report = tuple[str, Any]  # ("done", future) or ("lost", key)


class DaskEngine:
    """The workers of a scheduler, or, without an address, `jobs` worker processes on this machine.

    `reruns` counts the jobs that were run again because their worker was gone.
    Raises CourseError where the cluster can't be used, or a worker has another course than this process.
    """

    def __init__(
        self, jobs: int, limits: Limits, *, require_jail: bool = False, scheduler: str | None = None
    ):
        self._jobs, self._limits, self._require_jail = jobs, limits, require_jail
        self._scheduler = scheduler
        self.reruns = 0

    def judge_all(
        self, work: Iterable[WorkItem], begin: Begin
    ) -> Generator[tuple[str, Judgement], None, None]:
        items = iter(work)
        first = next(items, None)
        if first is None:
            return  # nothing to run: no cluster is started
        with silence_logging_cmgr(logging.CRITICAL), self._client() as client:
            local = self._scheduler is None
            run = _Run(client, _Bench(self._limits, self._require_jail, ignore_ctrl_c=local))
            try:
                run.begin(first, begin)
                while True:
                    for item in islice(items, max(0, run.places() - len(run.running))):
                        run.begin(item, begin)
                    if not run.running:
                        return
                    yield from run.finished()
                    self.reruns = run.reruns
            finally:
                run.end()

    @contextmanager
    def _client(self) -> Iterator[Client]:
        """A connection to the scheduler; the local cluster ends with it."""
        with ExitStack() as opened:
            try:
                address = self._scheduler or opened.enter_context(self._local_cluster()).scheduler_address
                client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
                opened.enter_context(client)
                client.wait_for_workers(1, timeout=WORKER_SECONDS)
            except TimeoutError:
                raise CourseError(
                    f"the Dask scheduler {address} has no worker after {WORKER_SECONDS:g} s; "
                    f"start some: dask worker {address} --nthreads 1"
                ) from None
            except (OSError, ValueError) as error:
                raise CourseError(f"no Dask scheduler answers there ({one_line(error)})") from None
            yield client

    def _local_cluster(self) -> LocalCluster:
        return LocalCluster(
            n_workers=self._jobs,
            threads_per_worker=1,
            processes=True,
            host=LOOPBACK,  # nobody else can reach it
            dashboard_address=None,
            memory_limit=0,  # what needs memory is bounded by the jail
            silence_logs=logging.CRITICAL,
            scheduler_kwargs={"dashboard_address": f"{LOOPBACK}:0", "allowed_failures": DEATHS - 1},
        )


class _Run:
    """The jobs that are with the cluster now."""

    def __init__(self, client: Client, bench: _Bench):
        self._client, self._name = client, f"grader-{uuid.uuid4().hex[:8]}"
        self._reports: queue.Queue[_Report] = queue.Queue()
        self._deaths: Counter[str] = Counter()
        self._about: dict[tuple[str, int], dict[str, Any]] = {}
        self.running: dict[str, tuple[WorkItem, Future[Any]]] = {}
        self.reruns = 0
        try:
            client.register_plugin(bench, name=self._name)
        except ImportError as error:
            raise CourseError(
                f"a Dask worker has no grader ({one_line(error)}); install the course where the workers run"
            ) from None
        client.subscribe_topic("all", self._hear)

    def places(self) -> int:
        """How many jobs can run at the same time now; workers may come and go."""
        return sum(self._client.nthreads().values())

    def begin(self, item: WorkItem, begin: Begin) -> None:
        begin(item)
        key = f"{self._name}-{item.key}"
        job = {**self._of_lab(item), "key": item.key, "source": item.source, "apart": sorted(item.apart)}
        future = self._client.submit(_judge, self._name, job, key=key, pure=False)
        self.running[key] = item, future
        future.add_done_callback(lambda future: self._reports.put(("done", future)))

    def finished(self) -> Iterator[tuple[str, Judgement]]:
        """Judgements that have come, none after a while without any."""
        try:
            what, about = self._reports.get(timeout=TICK)
        except queue.Empty:
            return
        if what == "lost":
            yield from self._lost(about)
        elif about.key in self.running:
            item, future = self.running.pop(about.key)
            yield item.key, self._judgement(item, future)

    def end(self) -> None:
        """End what still runs, and the examiners of all workers."""
        with suppress(Exception):  # the scheduler may be gone, and then nothing is left to end
            self._client.unsubscribe_topic("all")
            self._client.cancel([future for _, future in self.running.values()])
            self._client.unregister_worker_plugin(self._name)

    def _of_lab(self, item: WorkItem) -> dict[str, Any]:
        """What the job says of the lab: enough for a worker to find it, and to see that it is the same."""
        known = self._about.get((item.lab.name, item.seed))
        if known is None:
            known = {
                "root": str(item.lab.folder.resolve().parents[1]),
                "lab": item.lab.name,
                "seed": item.seed,
                "versions": versions(),
                "course": key_of(None, item.lab, item.seed),
            }
            self._about[item.lab.name, item.seed] = known
        return known

    def _hear(self, event: tuple[float, Any]) -> None:
        """Pass on which jobs a worker had that has gone; called in a thread of the client."""
        said = event[1]
        if isinstance(said, dict) and said.get("action") == "remove-worker":
            for key in {*said["processing-tasks"], *said["lost-computed-tasks"]}:
                self._reports.put(("lost", key))

    def _lost(self, key: str) -> Iterator[tuple[str, Judgement]]:
        if key not in self.running:
            return
        self._deaths[key] += 1
        if self._deaths[key] < DEATHS:
            self.reruns += 1  # the scheduler has given it to another worker already
            return
        item, future = self.running.pop(key)
        future.cancel()
        yield item.key, _given_up(item)

    def _judgement(self, item: WorkItem, future: Future[Any]) -> Judgement:
        if future.cancelled():
            raise CourseError(
                "the Dask scheduler is gone; what is finished is kept, the same command goes on"
            )
        try:
            refused, data = future.result()
        except KilledWorker:
            return _given_up(item)
        except Exception as error:
            return failed(_functions(item.lab), f"{type(error).__name__}: {error}")
        if refused:
            raise CourseError(refused)
        return _JUDGEMENT.validate_python(data)


def _given_up(item: WorkItem) -> Judgement:
    return failed(_functions(item.lab), f"{DEATHS} workers died of it")


def _functions(lab: Lab) -> list[str]:
    """The lab's tests as far as they are known without a worker."""
    return [test for step in lab.steps for test in step.tests]


# --- on a worker -----------------------------------------------------------------------------------------


class _Bench(WorkerPlugin):
    """A worker's examiners, from the run's beginning, or the worker's, to the end of either."""

    def __init__(self, limits: Limits, require_jail: bool, *, ignore_ctrl_c: bool):
        self._limits, self._require_jail, self._ignore_ctrl_c = limits, require_jail, ignore_ctrl_c

    def setup(self, worker: Worker) -> None:
        if self._ignore_ctrl_c and threading.current_thread() is threading.main_thread():
            # A terminal sends it to the workers, too; the coordinator ends them, and they need not complain.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._started = ExitStack()
        self._examiners = Examiners(self._limits, self._require_jail, self._started)
        # Their own threads, so that the end can wait for them.
        self._threads = self._started.enter_context(ThreadPoolExecutor(worker.state.nthreads))
        self._labs: dict[tuple[str, int], Lab] = {}
        self._lock = threading.Lock()

    async def teardown(self, worker: Worker) -> None:
        await asyncio.to_thread(self._end)

    def judge(self, job: dict[str, Any]) -> Judgement:
        with self._lock:
            place = job["lab"], job["seed"]
            lab = self._labs[place] = self._labs.get(place) or _same_lab(job)
        apart = frozenset(job["apart"])
        item = WorkItem(job["key"], lab, job["seed"], job["source"], student="", apart=apart)
        return self._threads.submit(self._examiners.judge, item).result()

    def _end(self) -> None:
        self._examiners.stop.set()
        self._threads.shutdown()
        self._started.close()


def _judge(bench: str, job: dict[str, Any]) -> tuple[str, Any]:
    """The task: why this worker refuses the job, or "" and the judgement as plain data."""
    plugin = get_worker().plugins[bench]
    assert isinstance(plugin, _Bench)
    try:
        return "", _JUDGEMENT.dump_python(plugin.judge(job))
    except CourseError as error:
        return f"the worker on {socket.gethostname()} can't grade: {error}", None


def _same_lab(job: dict[str, Any]) -> Lab:
    """The job's lab in this worker's course; CourseError if that isn't the coordinator's."""
    here, there = versions(), job["versions"]
    names = [name for name in here if here[name] != there.get(name)]
    differing = [f"{name} {here[name]}, not {there.get(name)}" for name in names]
    if differing:
        raise CourseError(f"it has {', '.join(differing)}; install the same versions everywhere")
    root = find_root(Path(job["root"]))
    lab = load_course(root).find_lab(job["lab"])
    if key_of(None, lab, job["seed"]) != job["course"]:
        raise CourseError(f"{root} holds another version of {lab.name}; bring the same course everywhere")
    return lab
