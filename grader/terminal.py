"""What commands share: the course that we are in, and how a line, or work in progress, is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from grader.course import Course, find_root, load_course


def open_course() -> Course:
    """The course that the command was given in."""
    return load_course(find_root())


def console() -> Console:
    return Console(highlight=False)


def say(text: str, style: str = "") -> None:
    """One line, never wrapped: it may hold a path or a command to copy."""
    console().print(text, style=style, markup=False, soft_wrap=True)


@contextmanager
def spinner() -> Iterator[Callable[[str], None]]:
    """What is being done right now, on a terminal; nothing in a file or a pipe."""
    screen = console()
    if not screen.is_terminal:
        yield lambda text: None
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=screen, transient=True) as progress:
        task = progress.add_task("")
        yield lambda text: progress.update(task, description=text)
