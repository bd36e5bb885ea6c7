"""Each layer of the jail, tried in forked children: the same act with and without it."""

from __future__ import annotations

import ctypes
import errno
import faulthandler
import json
import multiprocessing
import os
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grader import jail
from tests.test_jail_filter import EXPECTED

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the layers are Linux's")

LAYERS = {layer.split()[0]: layer for layer in jail.available_layers()}
ABI = int(LAYERS.get("landlock", "landlock 0").split()[1])
COURSE = Path(__file__).parent.parent
MIB = 1 << 20
LIMITS = {"memory_bytes": 256 * MIB, "file_bytes": MIB, "open_files": 64, "cpu_seconds": 20}

Act = Callable[[Path], object]


def libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: int | bytes) -> int:
    """Make a system call of the jail's list; raise OSError if it fails."""
    number = jail.system_calls(os.uname().machine)[name]
    passed = [a if isinstance(a, bytes) else ctypes.c_long(a) for a in arguments]
    result = int(libc().syscall(ctypes.c_long(number), *passed))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def confinement(scratch: Path, **limits: int) -> jail.Confinement:
    return jail.Confinement(scratch, jail.runtime_paths(), **{**LIMITS, **limits})


def in_child(act: Callable[[], object]) -> str:
    """What came of an act in a forked child: its result, its error, or the signal that ended it."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        faulthandler.disable()  # an act that dies should do so silently
        signal.alarm(30)  # and one that goes on for ever should die
        os.close(reader)
        try:
            said = f"done: {act()}"
        except BaseException as error:
            name = errno.errorcode.get(getattr(error, "errno", None) or 0, "")
            said = f"{type(error).__name__} {name}: {error}"
        os.write(writer, said.encode()[:4000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read().decode()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return said or f"died: {status}"


def jailed(act: Act, scratch: Path, **limits: int) -> str:
    def confined() -> object:
        jail.confine(confinement(scratch, **limits))
        return act(scratch)

    return in_child(confined)


def needs(*layers: str, abi: int = 0) -> None:
    missing = [layer for layer in layers if layer not in LAYERS]
    if missing or abi > ABI:
        pytest.skip(f"this kernel offers no {', '.join(missing) or f'Landlock of version {abi}'}")


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """The folder that may be written, beside one that may not."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("theirs")
    (tmp_path / "scratch").mkdir()
    (tmp_path / "scratch" / "file").write_text("mine")
    return tmp_path / "scratch"


def outside(scratch: Path) -> Path:
    return scratch.parent / "outside"


# --- files


def write_and_remove(path: Path) -> None:
    path.write_text("x")
    path.unlink()


FILE_ACTS: dict[str, Act] = {
    "read the users of the machine": lambda s: Path("/etc/passwd").read_text(),
    "read a file of the course": lambda s: (COURSE / "pyproject.toml").read_text(),
    "list the course": lambda s: os.listdir(COURSE),
    "list the home folder": lambda s: os.listdir(Path.home()),
    "list the temporary folder": lambda s: os.listdir(s.parent),
    "read the parent's environment": lambda s: Path(f"/proc/{os.getppid()}/environ").read_bytes(),
    "open the parent's memory": lambda s: open(f"/proc/{os.getppid()}/mem", "rb").close(),
    "follow a link of the parent": lambda s: os.readlink(f"/proc/{os.getppid()}/cwd"),
    "read its own memory map": lambda s: Path("/proc/self/maps").read_text(),
    "write outside": lambda s: (outside(s) / "new").write_text("x"),
    "write to /tmp": lambda s: write_and_remove(Path(f"/tmp/jail-{os.getpid()}")),
    "write to shared memory": lambda s: write_and_remove(Path(f"/dev/shm/jail-{os.getpid()}")),
    "append to a file outside": lambda s: open(outside(s) / "file", "a").close(),
    "remove a file outside": lambda s: (outside(s) / "file").unlink(),
    "make a folder outside": lambda s: (outside(s) / "folder").mkdir(),
    "move a file out": lambda s: (s / "file").rename(outside(s) / "moved"),
    "move a file in": lambda s: (outside(s) / "file").rename(s / "moved"),
    "link a file in": lambda s: os.link(outside(s) / "file", s / "linked"),
    "make a symbolic link": lambda s: os.symlink("/etc", s / "link"),
}


@pytest.mark.parametrize("name", FILE_ACTS)
def test_files_beyond_the_lists_are_out_of_reach(name: str, scratch: Path) -> None:
    needs("landlock")
    act = FILE_ACTS[name]
    refused = jailed(act, scratch)
    assert re.match(r"(PermissionError E(ACCES|PERM)|OSError EXDEV):", refused), refused
    assert in_child(lambda: act(scratch)).startswith("done")


def test_old_handles_to_a_folder_open_no_door(scratch: Path) -> None:
    needs("landlock")
    folder = os.open(outside(scratch), os.O_RDONLY)
    try:

        def read(_: Path) -> bytes:
            return os.read(os.open("file", os.O_RDONLY, dir_fd=folder), 9)

        assert in_child(lambda: read(scratch)) == "done: b'theirs'"
        assert jailed(read, scratch).startswith("PermissionError EACCES")
    finally:
        os.close(folder)


# Landlock says nothing of these, so that the filter has to.
UNWATCHED_ACTS: dict[str, Act] = {
    "change the mode of a file outside": lambda s: os.chmod(outside(s) / "file", 0o777),
    "change the owner of a file outside": lambda s: os.chown(outside(s) / "file", os.getuid(), os.getgid()),
    "change the date of a file outside": lambda s: os.utime(outside(s) / "file"),
    "mark a file outside": lambda s: os.setxattr(outside(s) / "file", "user.mark", b"x"),
    "empty a file outside": lambda s: os.truncate(outside(s) / "file", 0),
    "empty a file by opening it to read": lambda s: os.open(outside(s) / "file", os.O_RDONLY | os.O_TRUNC),
    "empty a file by opening it for nothing": lambda s: os.open(outside(s) / "file", 3 | os.O_TRUNC),
    "make a pipe with a name": lambda s: os.mkfifo(s / "pipe"),
}


@pytest.mark.parametrize("name", UNWATCHED_ACTS)
def test_marks_and_contents_of_files_stay_without_landlock(name: str, scratch: Path) -> None:
    needs("seccomp")
    act = UNWATCHED_ACTS[name]

    def without_landlock() -> object:
        offered = jail.available_layers()
        jail.available_layers = lambda: tuple(one for one in offered if "landlock" not in one)
        jail.confine(confinement(scratch))
        return act(scratch)

    assert in_child(without_landlock).startswith("PermissionError EPERM")
    assert (outside(scratch) / "file").read_text() == "theirs"
    assert in_child(lambda: act(scratch)).startswith("done")


# --- system calls


def tcp(address: tuple[str, int]) -> None:
    with socket.socket() as one:
        one.bind(address)


def unix(address: str) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(address)


def start_worker() -> None:
    worker = multiprocessing.get_context("fork").Process(target=os.getpid)
    worker.start()
    worker.join()


def fork() -> None:
    if os.fork() == 0:
        os._exit(0)


def spawn() -> None:
    os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)


def peek() -> int:
    """Read own memory the way that another process's is read."""
    target = ctypes.create_string_buffer(b"secret")
    own = ctypes.create_string_buffer(6)
    theirs, mine = (struct.pack("PN", ctypes.addressof(one), 6) for one in (target, own))
    return call("process_vm_readv", os.getpid(), mine, 1, theirs, 1, 0)


CALL_ACTS: dict[str, Callable[[], object]] = {
    "TCP": lambda: tcp(("127.0.0.1", 0)),
    "UDP": lambda: socket.socket(type=socket.SOCK_DGRAM).close(),
    "abstract socket": lambda: unix(f"\0jail-{os.getpid()}"),
    "socket pair": lambda: socket.socketpair(),
    "name of a host": lambda: socket.create_server(("localhost", 0)).close(),
    "fork": fork,
    "spawn": spawn,
    "subprocess": lambda: subprocess.run(["/bin/true"], check=True),
    "shell": lambda: subprocess.run("true", shell=True, check=True),
    "multiprocessing": start_worker,
    "probe the parent": lambda: os.kill(os.getppid(), 0),
    "probe the group": lambda: os.killpg(0, 0),
    "probe everybody": lambda: os.kill(-1, 0),
    "handle of the parent": lambda: os.pidfd_open(os.getppid()),
    "trace": lambda: call("ptrace", 0, 0, 0, 0),
    "read memory of a process": peek,
    "limits of the parent": lambda: resource.prlimit(os.getppid(), resource.RLIMIT_AS),
    "priority": lambda: os.setpriority(os.PRIO_PROCESS, 0, 1),
    "processors of the parent": lambda: os.sched_setaffinity(os.getppid(), os.sched_getaffinity(0)),
    "own session": lambda: os.setsid(),
    "own group": lambda: os.setpgid(0, 0),
    "live on without the parent": lambda: call("prctl", 1, 0),
    "memory as a file": lambda: os.memfd_create("x"),
    "shared memory": lambda: call("shmctl", call("shmget", 0, 4096, 0o600), 0, 0),
    "keys": lambda: call("keyctl", 0, -3, 1),
    "personality": lambda: call("personality", 0),
    "watch files": lambda: os.close(call("inotify_init1", 0)),
}


@pytest.mark.parametrize("name", CALL_ACTS)
def test_call_is_refused_with_an_error_that_says_so(name: str, scratch: Path) -> None:
    needs("seccomp")
    act = CALL_ACTS[name]
    refused = jailed(lambda s: act(), scratch)
    assert re.match(r"PermissionError E(PERM|ACCES):", refused), refused


@pytest.mark.parametrize("name", CALL_ACTS)
def test_call_works_outside(name: str) -> None:
    assert in_child(CALL_ACTS[name]).startswith("done")


@pytest.mark.skipif(os.getuid() != 0, reason="refused to everybody but root in any case")
@pytest.mark.parametrize(
    ("name", "act"),
    [
        ("chroot", lambda s: os.chroot(s)),
        ("new namespace", lambda s: call("unshare", 0x04000000)),
        ("device", lambda s: os.mknod(s / "disk", 0o60600, os.makedev(8, 0))),
        ("owner of a file", lambda s: os.chown(s / "file", 12345, 12345)),
        ("another user", lambda s: os.setuid(12345)),
    ],
)
def test_root_is_not_root_inside(name: str, act: Act, scratch: Path) -> None:
    refused = jailed(act, scratch)
    if name == "device":  # may be refused to root of a container
        assert re.match(r"PermissionError", refused)
        return
    assert refused.startswith("PermissionError EPERM"), refused
    assert in_child(lambda: act(scratch)).startswith("done")


def test_signals_reach_the_process_itself_alone(scratch: Path) -> None:
    needs("seccomp")
    assert jailed(lambda s: os.kill(os.getpid(), 0), scratch) == "done: None"
    assert jailed(lambda s: signal.raise_signal(signal.SIGTERM), scratch) == f"died: {-signal.SIGTERM}"
    assert jailed(lambda s: os.abort(), scratch) == f"died: {-signal.SIGABRT}"


def test_landlock_alone_keeps_signals_and_connections_in(scratch: Path) -> None:
    needs("landlock", abi=6)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()

        def alone(act: Callable[[], object]) -> Callable[[], object]:
            def confined() -> object:
                jail.available_layers = lambda: (LAYERS["landlock"],)
                jail.confine(confinement(scratch))
                return act()

            return confined

        for act in (
            lambda: os.kill(os.getppid(), 0),
            lambda: socket.create_connection(address).close(),
            lambda: tcp(("127.0.0.1", 0)),
        ):
            assert re.match(r"PermissionError E(PERM|ACCES):", in_child(alone(act)))
            assert in_child(act).startswith("done")


# --- the filter in this kernel (as a program, also for other machines: test_jail_filter)


def test_every_listed_call_is_refused_by_this_kernel(scratch: Path) -> None:
    needs("seccomp")
    conditional = {name for name, _, said in EXPECTED if said != errno.EPERM} | {"open"}
    names = [name for name in jail.system_calls(os.uname().machine) if name not in conditional]

    def is_refused(name: str) -> bool:
        try:
            call(name, *[-1] * 6)
        except OSError as error:
            return error.errno == errno.EPERM
        return False

    def allowed(_: Path) -> list[str]:
        return [name for name in names if not is_refused(name)]

    assert len(names) > 100
    assert jailed(allowed, scratch) == "done: []"


# --- capabilities and limits


def sleep_confined(scratch: Path, writer: int) -> int:
    """Fork a child that is confined, says so and sleeps; return its process id."""
    pid = os.fork()
    if pid == 0:
        try:
            jail.confine(confinement(scratch))
            os.write(writer, b"x")
            time.sleep(20)
        finally:
            os._exit(0)
    return pid


def test_no_capability_is_left(scratch: Path) -> None:
    reader, writer = os.pipe()
    pid = sleep_confined(scratch, writer)
    os.close(writer)
    os.read(reader, 1)
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(reader)
    held = dict(re.findall(r"^(\w+):\s+(\S+)$", status, re.MULTILINE))
    sets = ["CapInh", "CapPrm", "CapEff", "CapAmb"] + (["CapBnd"] if os.getuid() == 0 else [])
    assert {name: int(held[name], 16) for name in sets} == dict.fromkeys(sets, 0)
    assert held["NoNewPrivs"] == "1"
    assert held["Seccomp"] == ("2" if "seccomp" in LAYERS else "0")


def test_process_dies_with_its_parent(scratch: Path) -> None:
    reader, writer = os.pipe()
    parent = os.fork()
    if parent == 0:
        os.close(reader)
        said, saying = os.pipe()
        sleep_confined(scratch, saying)
        os.close(saying)
        os._exit(os.read(said, 1) != b"x")
    assert os.waitpid(parent, 0)[1] == 0  # it has left a confined child behind
    os.close(writer)
    began = time.monotonic()
    assert os.read(reader, 1) == b""  # the end of the pipe: nobody holds it any more
    assert time.monotonic() - began < 10
    os.close(reader)


def open_many(scratch: Path) -> int:
    return len([open(scratch / "file") for _ in range(200)])


def fill(scratch: Path) -> int:
    with open(scratch / "big", "wb", buffering=0) as file:
        return file.write(bytes(MIB)) + file.write(bytes(MIB))


LIMIT_ACTS: dict[str, tuple[Act, str]] = {
    "too much memory": (lambda s: len(bytearray(512 * MIB)), "MemoryError"),
    "too large a file": (fill, "OSError EFBIG"),
    "too many open files": (open_many, "OSError EMFILE"),
    "higher limits": (lambda s: resource.setrlimit(resource.RLIMIT_CPU, (24, 24)), "ValueError"),
}


@pytest.mark.parametrize("name", LIMIT_ACTS)
def test_limit_ends_in_an_error(name: str, scratch: Path) -> None:
    act, error = LIMIT_ACTS[name]
    assert jailed(act, scratch).startswith(error)
    assert in_child(lambda: act(scratch)).startswith("done")


def test_processor_time_ends_the_process(scratch: Path) -> None:
    def spin(_: Path) -> None:
        while True:
            pass

    assert jailed(spin, scratch, cpu_seconds=1) == f"died: {-signal.SIGXCPU}"


@pytest.mark.parametrize("stack", [0, 1 << 15], ids=["ordinary stack", "smallest stack"])
def test_thread_bomb_ends_in_an_error(stack: int, scratch: Path) -> None:
    needs("seccomp")

    def bomb() -> int:
        threading.stack_size(stack)
        started = 0
        try:
            while started < 500:
                threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
                started += 1
        except RuntimeError:
            pass
        return started

    assert in_child(bomb) == "done: 500"
    survived = re.fullmatch(r"done: (\d+)", jailed(lambda s: bomb(), scratch))
    assert survived
    assert int(survived[1]) < 64


def test_limits_that_were_lower_stay(scratch: Path) -> None:
    def twice() -> object:
        resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
        jail.confine(confinement(scratch))
        return resource.getrlimit(resource.RLIMIT_NOFILE)

    assert in_child(twice) == "done: (32, 32)"


# --- the whole


def test_layers_that_hold_are_those_that_the_kernel_offers(scratch: Path) -> None:
    assert set(LAYERS) <= set(jail.ALL_LAYERS)
    assert in_child(lambda: jail.confine(confinement(scratch))) == f"done: {jail.available_layers()}"


@pytest.mark.parametrize("abi", [1, 2, 3, 4, 5])
def test_older_landlock_still_confines(abi: int, scratch: Path) -> None:
    needs("landlock", abi=abi)

    def old() -> object:
        jail._landlock_abi = lambda: abi
        layers = jail.confine(confinement(scratch))
        write_and_remove(scratch / "new")
        with pytest.raises(PermissionError):
            Path("/etc/passwd").read_text()
        return layers[0]

    assert in_child(old) == f"done: landlock {abi}"


@pytest.mark.skipif(os.getuid() != 0, reason="the other tests have shown it")
def test_no_layer_needs_root(scratch: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)

        def as_nobody() -> object:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            layers = jail.confine(confinement(Path(folder)))
            write_and_remove(Path(folder, "new"))
            with pytest.raises(PermissionError):
                Path("/etc/passwd").read_text()
            with pytest.raises(PermissionError):
                socket.socket()
            return layers

        assert in_child(as_nobody) == f"done: {jail.available_layers()}"


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_elsewhere_no_layer_is_claimed(system: str, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", system)
    assert jail.available_layers() == ()
    assert jail.confine(confinement(scratch)) == ()


def test_kernel_without_the_interfaces_is_not_said_to_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jail, "_landlock_abi", lambda: -1)
    monkeypatch.setattr(jail, "_MACHINES", {})
    assert jail.available_layers() == ("capabilities", "limits")


def test_process_with_threads_is_not_confined(scratch: Path) -> None:
    def late() -> object:
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        return jail.confine(confinement(scratch))

    assert in_child(late).startswith("RuntimeError")


def test_runtime_paths_hold_no_private_place() -> None:
    paths = jail.runtime_paths()
    private = [COURSE, Path.home(), Path("/proc"), Path("/etc"), Path("/tmp"), Path(sys.prefix)]
    assert not [(path, place) for path in paths for place in private if place.is_relative_to(path)]
    assert Path(os.__file__).parent.is_relative_to(Path(sys.base_prefix, "lib"))
    assert Path(sys.base_prefix, "lib").resolve() in paths


HONEST = """
import gc, json, os, sys, tempfile, time, warnings
from pathlib import Path
import torch
torch.set_num_threads(1)
torch.randn(8, 8) @ torch.randn(8, 8)
from grader import jail

scratch, course = Path(sys.argv[1]), sys.argv[2]
os.environ["MPLCONFIGDIR"] = str(scratch)
readable = jail.runtime_paths()
reader, writer = os.pipe()

def honest():
    import threading, traceback
    weight = torch.randn(300, 300, requires_grad=True)
    torch.set_num_threads(4)
    loss = torch.nn.functional.cross_entropy((weight @ torch.randn(300, 300)).relu(), torch.arange(300))
    loss.backward()
    yield "backward", bool(weight.grad.abs().sum() > 0)
    parallel = torch.randn(1024, 1024) @ torch.randn(1024, 1024)
    yield "parallel", parallel.shape[0] == 1024 and torch.get_num_threads() == 4
    done = []
    threads = [threading.Thread(target=done.append, args=(n,)) for n in range(8)]
    [t.start() for t in threads], [t.join() for t in threads]
    yield "threads", len(done) == 8
    with tempfile.NamedTemporaryFile() as file:
        torch.save({"w": weight}, file.name)
        yield "save and load", torch.equal(torch.load(file.name)["w"], weight)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "touched").touch()
        yield "folder", os.listdir(folder) == ["touched"]
    import fractions, sqlite3, zoneinfo, decimal, importlib.metadata, concurrent.futures
    yield "stdlib", sqlite3.connect(":memory:").execute("select 1").fetchone() == (1,)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        yield "pool", list(pool.map(abs, [-1, -2])) == [1, 2]
    yield "zone", zoneinfo.ZoneInfo("Europe/Paris").key == "Europe/Paris"
    import numpy
    yield "numpy", float(numpy.linalg.norm(numpy.eye(3) @ numpy.ones(3))) > 1
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.warn("heard")
    yield "warnings", len(caught) == 1
    try:
        1 / 0
    except ZeroDivisionError:
        yield "traceback", "ZeroDivisionError" in traceback.format_exc()
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    pyplot.plot([1, 2])
    pyplot.savefig(scratch / "figure.png")
    yield "matplotlib", (scratch / "figure.png").stat().st_size > 1000
    open("/dev/null", "w").write("x")
    yield "random", len(os.urandom(4)) == 4 and time.time() > 0 and torch.rand(1).numel() == 1
    yield "compiled operator", torch.nn.Conv2d(3, 8, 3)(torch.randn(2, 3, 16, 16)).shape[1] == 8
    yield "linear algebra", torch.linalg.svd(torch.randn(64, 64)).S.shape[0] == 64
    try:
        from torch.utils.data import DataLoader
        next(iter(DataLoader(torch.arange(8), num_workers=2)))
        yield "workers", False
    except PermissionError as error:
        yield "workers", True
    try:
        torch.empty(1 << 32)
        yield "memory", False
    except RuntimeError as error:
        yield "memory", "memory" in str(error)
    try:
        open(Path(course, "pyproject.toml"))
        yield "course", False
    except PermissionError:
        yield "course", True

if os.fork() == 0:
    results = {}
    tempfile.tempdir = str(scratch)
    began = time.perf_counter()
    layers = jail.confine(jail.Confinement(scratch, readable, 4 << 30, 64 << 20, 256, 60))
    results["milliseconds"] = 1000 * (time.perf_counter() - began)
    try:
        results.update(honest())
    except BaseException as error:
        import traceback
        results["failed"] = traceback.format_exc()
    os.write(writer, json.dumps(results).encode())
    os._exit(0)
os.close(writer)
print(os.read(reader, 1 << 16).decode())
"""


def test_honest_code_with_torch_runs_inside(scratch: Path) -> None:
    needs("landlock", "seccomp")
    run = subprocess.run(
        [sys.executable, "-I", "-c", HONEST, str(scratch), str(COURSE)], capture_output=True, text=True
    )
    results = json.loads(run.stdout)
    assert results.pop("milliseconds") < 20  # about 1 ms on a quiet machine
    assert len(results) == 18, results
    assert all(value is True for value in results.values()), (results, run.stderr)
