"""Files that are either whole or not there, and temporary folders that never stay."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

OURS = "grader-"


def write_atomically(path: Path, content: bytes) -> None:
    """Put `content` at `path` in one move: a reader, or a crash, never meets half a file."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def scratch_folder() -> Path:
    """A new temporary folder, named after this process so that `sweep_scratch` knows whose it was."""
    return Path(tempfile.mkdtemp(prefix=f"{OURS}{os.getpid()}-"))


@contextlib.contextmanager
def private_folder() -> Iterator[Path]:
    """A scratch folder that is gone afterwards, whatever was put into it."""
    folder = scratch_folder()
    try:
        yield folder
    finally:
        remove_tree(folder)


def remove_tree(folder: Path) -> None:
    """Remove a folder with all that is in it, also one that is nested deeper than Python can go."""
    with contextlib.suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    if folder.exists() and os.name == "posix":  # too deep for Python, or a folder without its own rights
        for command in (["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
            subprocess.run([*command, "--", str(folder)], check=False, stderr=subprocess.DEVNULL)


def holds_more_than(folder: Path, files: int, size: int) -> bool:
    """Whether more than that many entries, or bytes, lie below a folder; stops counting when it knows."""
    waiting, entries, total = [str(folder)], 0, 0
    while waiting:
        try:
            with os.scandir(waiting.pop()) as found:
                for entry in found:
                    entries += 1
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
                    if entries > files or total > size:
                        return True
        except FileNotFoundError:
            continue  # it has just been removed
        except OSError:
            return True  # too deep to be looked at, or closed to everybody
    return False


def sweep_scratch() -> None:
    """Remove the temporary folders of graders that are gone: killed, they could not tidy up."""
    if os.name != "posix":
        return  # elsewhere no harmless question tells whether a process is there
    for folder in Path(tempfile.gettempdir()).glob(f"{OURS}*"):
        found = re.match(rf"{OURS}(\d+)-", folder.name)
        with contextlib.suppress(OSError):
            if found and not _is_alive(int(found[1])) and folder.lstat().st_uid == os.getuid():
                remove_tree(folder)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
