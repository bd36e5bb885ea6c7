"""Ways to put a hand-in into a student's folder."""

from __future__ import annotations

import io
import json
import os
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

PutIn = Callable[[Path], object]
Files = Mapping[str, str | bytes]


def file_of(name: str, data: str | bytes) -> PutIn:
    return folder_of({name: data})


def folder_of(files: Files) -> PutIn:
    def put(folder: Path) -> None:
        for name, data in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data.encode() if isinstance(data, str) else data)

    return put


def notebook_of(*cells: str) -> PutIn:
    code = [{"cell_type": "code", "source": cell, "outputs": [], "metadata": {}} for cell in cells]
    return file_of(
        "exercise.ipynb", json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": code})
    )


def zipped(files: Files, links: Mapping[str, str] | None = None) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        for name, target in (links or {}).items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = 0o120777 << 16
            archive.writestr(entry, target)
    return buffer.getvalue()


def tarred(*entries: tuple[str, bytes, bytes, str]) -> bytes:
    """Entries of a name, a type (tarfile.FIFOTYPE, ...), data and a link's target."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, kind, data, target in entries:
            entry = tarfile.TarInfo(name)
            entry.type, entry.size, entry.linkname = kind, len(data), target
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def link_to(target: str) -> PutIn:
    return lambda folder: os.symlink(target, folder / "exercise.py")


def pipe(folder: Path) -> None:
    os.mkfifo(folder / "exercise.py")
