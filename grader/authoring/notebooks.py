"""Make a lab's notebook from its plain-text source: `notebook_source.py` in the percent format."""

from __future__ import annotations

from pathlib import Path

from grader.course import CourseError


def make_notebook(source: Path) -> str:
    """The notebook as text, without outputs, the same for the same source."""
    try:
        import jupytext  # in the dev extra only
        import nbformat
    except ImportError:
        raise CourseError('making notebooks needs the dev extra: pip install -e ".[dev]"') from None
    notebook = jupytext.reads(source.read_text(encoding="utf-8"), fmt="py:percent")
    for number, cell in enumerate(notebook.cells, start=1):
        cell["id"] = f"cell-{number:02}"  # nbformat's own ids are random
        cell["metadata"] = {}
    notebook["metadata"] = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    notebook["nbformat"], notebook["nbformat_minor"] = 4, 5
    nbformat.validate(notebook)
    text: str = nbformat.writes(notebook)
    return text + "\n"
