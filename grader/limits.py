"""What a submission may use while it is judged."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Seconds and bytes; wall time unless it says computing time."""

    test_seconds: float = 10.0  # of one test
    import_seconds: float = 20.0  # of the import of the file
    total_seconds: float = 120.0  # of the submission
    start_seconds: float = 60.0  # of the grader's own start
    cpu_seconds: float = 2.0  # computing time of one test, on top of a multiple of the solution's
    cpu_factor: float = 50.0  # that multiple
    memory_bytes: int = 1 << 30  # address space on top of the server's
    files: int = 1000  # that it may have in its folder
    folder_bytes: int = 64 << 20  # that these may hold together

    def computing(self, needed: float) -> float:
        """The computing time that one test may take, if the solution needs `needed` seconds."""
        return self.cpu_seconds + self.cpu_factor * needed
