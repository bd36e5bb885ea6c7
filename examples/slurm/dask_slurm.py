"""A class on Dask workers that Slurm starts: python dask_slurm.py CLASS OUT [OPTIONS of grader grade]."""

from __future__ import annotations

import subprocess
import sys

from dask_jobqueue import SLURMCluster

JOBS, CORES = 4, 8  # jobs for Slurm, workers in each


def main() -> int:
    group, out, *options = sys.argv[1:]
    with SLURMCluster(
        cores=CORES,
        processes=CORES,  # one thread a worker
        memory="16GB",
        walltime="01:00:00",
        # account="...", queue="...", interface="ib0",
        job_script_prologue=["source /path/to/course/.venv/bin/activate"],
        scheduler_options={"allowed_failures": 1},  # a job whose worker died is run once more, not thrice
    ) as cluster:
        cluster.scale(jobs=JOBS)
        cluster.wait_for_workers(1)  # as long as Slurm's queue takes; more join while the class is graded
        command = ["grader", "grade", group, "--out", out, *options]
        return subprocess.run(
            [*command, "--engine", "dask", "--scheduler", cluster.scheduler_address]
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
