"""What crosses from a submission's process to the trusted one: frames of raw values, bounded and checked.

A frame is a header (one byte for its kind, four for the length) and a payload.
A value frame holds one actual value of a check; an end frame closes a test and says in words how it went.
No frame says that something passed, and nothing that arrives is ever run: numbers are read as numbers.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from grader.comparison import Foreign, Raised, kind
from grader.verdicts import MESSAGE_LINES, printable

VALUE, END, IMPORTED, READY = b"V", b"E", b"I", b"R"
FRAME_BYTES = 4 << 20  # of one frame
TEXT_BYTES = 4096
MOST_DIMENSIONS = 16
MOST_STEPS = 1000  # of a trajectory, and of quantities in a step
HEADER = struct.Struct("<cI")

DTYPES = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16),
    *(torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128),
)
_CODES = {dtype: code for code, dtype in enumerate(DTYPES)}


class BadFrame(Exception):
    """The bytes are no frame: whatever wrote them is not the grader's own code."""


@dataclass(frozen=True)
class Ended:
    """How a test, or the import of the file, ended; a claim of the submission's process, never evidence.

    `error` is the exception's class, "" if there was none.
    """

    outcome: str  # one of verdicts.VERDICTS, or DONE
    text: str = ""
    error: str = ""


DONE = "done"  # the test function returned


def pack_value(value: object) -> bytes:
    """The frame of one actual value; what is too large or of another type becomes its description."""
    payload = _pack(value)
    if len(payload) > FRAME_BYTES:
        payload = _pack(Foreign(f"{kind(value)}, more than {FRAME_BYTES >> 20} MiB of it"))
    return HEADER.pack(VALUE, len(payload)) + payload


def pack_end(ended: Ended, frame: bytes = END) -> bytes:
    """The frame that closes a test (END), the import of the file (IMPORTED), or the set-up (READY)."""
    payload = b"".join(_pack_text(text) for text in (ended.outcome, ended.text, ended.error))
    return HEADER.pack(frame, len(payload)) + payload


Frame = tuple[bytes, object]  # the kind, and the value or the Ended


def unpack(read: Callable[[int], bytes]) -> Iterator[Frame]:
    """The frames that `read` (n bytes, fewer only at the end) brings; BadFrame at the first that is none."""
    while len(header := read(HEADER.size)) == HEADER.size:
        frame, size = HEADER.unpack(header)
        if frame not in (VALUE, END, IMPORTED, READY) or size > FRAME_BYTES:
            raise BadFrame("a header that the grader doesn't write")
        payload = read(size)
        if len(payload) < size:
            return  # the process ended in the middle
        cursor = _Cursor(payload)
        value = _unpack(cursor) if frame == VALUE else _unpack_end(cursor)
        if cursor.left:
            raise BadFrame("a frame with bytes left over")
        yield frame, value


def _pack(value: object) -> bytes:
    if isinstance(value, Tensor):
        return _pack_tensor(value)
    if value is None:
        return b"n"
    if isinstance(value, bool):
        return b"b" + bytes([value])
    if isinstance(value, int):
        if not -(1 << 63) <= int(value) < 1 << 63:
            return b"x" + _pack_text("an int beyond 64 bits")
        return b"i" + struct.pack("<q", int(value))
    if isinstance(value, float):
        return b"f" + struct.pack("<d", value)
    if isinstance(value, Raised):
        return b"r" + bytes([value.fits]) + _pack_text(value.name) + _pack_text(value.text)
    if isinstance(value, list | tuple) and all(isinstance(item, float) for item in value):
        return b"l" + struct.pack(f"<I{len(value)}d", len(value), *value)
    if isinstance(value, list) and len(value) <= MOST_STEPS and all(isinstance(item, dict) for item in value):
        return b"t" + struct.pack("<I", len(value)) + b"".join(map(_pack_step, value))
    return b"x" + _pack_text(value.kind if isinstance(value, Foreign) else kind(value))


def _pack_tensor(value: Tensor) -> bytes:
    """Only an exact tensor goes out as numbers: a subclass may answer for itself, whatever it holds."""
    if type(value) not in (Tensor, nn.Parameter):
        return b"x" + _pack_text(kind(value))
    if value.layout != torch.strided:
        return b"x" + _pack_text(f"a tensor of layout {value.layout}")
    if value.dtype not in _CODES or value.device.type != "cpu" or value.ndim > MOST_DIMENSIONS:
        return b"x" + _pack_text(f"{kind(value)} on {value.device}")
    if value.numel() * value.element_size() > FRAME_BYTES:
        return b"x" + _pack_text(f"{kind(value)}, more than {FRAME_BYTES >> 20} MiB of it")
    plain = value.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    raw = plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b""
    head = struct.pack(f"<BB{value.ndim}Q", _CODES[value.dtype], value.ndim, *value.shape)
    return b"T" + head + raw


def _pack_step(step: Mapping[str, object]) -> bytes:
    parts = [struct.pack("<I", len(step))]
    for name, value in step.items():
        inner = _pack(value)
        parts += [_pack_text(name), struct.pack("<I", len(inner)), inner]
    return b"".join(parts)


def _pack_text(text: str) -> bytes:
    data = text.encode("utf-8", "replace")[:TEXT_BYTES]
    return struct.pack("<H", len(data)) + data


class _Cursor:
    """A payload that is read from front to back; running past its end is a BadFrame."""

    def __init__(self, data: bytes):
        self._data, self._at, self._size = data, 0, len(data)

    @property
    def left(self) -> int:
        return self._size - self._at

    def take(self, size: int) -> bytes:
        begin = self._at
        self._at = end = begin + size
        if end > self._size:
            raise BadFrame("a frame that is shorter than it says")
        return self._data[begin:end]

    def number(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def text(self) -> str:
        size = int.from_bytes(self.take(2), "little")
        return "\n".join(
            map(printable, self.take(size).decode("utf-8", "replace").splitlines()[:MESSAGE_LINES])
        )

    def name(self) -> str:
        size = int.from_bytes(self.take(2), "little")
        return self.take(size).decode("utf-8", "replace")


def _unpack_end(cursor: _Cursor) -> Ended:
    return Ended(cursor.text(), cursor.text(), cursor.text())


def _unpack(cursor: _Cursor, depth: int = 0) -> object:
    tag = cursor.take(1)
    if tag == b"T":
        return _unpack_tensor(cursor)
    if tag == b"n":
        return None
    if tag == b"b":
        return bool(cursor.take(1)[0])
    if tag == b"i":
        return int.from_bytes(cursor.take(8), "little", signed=True)
    if tag == b"f":
        return float(struct.unpack("<d", cursor.take(8))[0])
    if tag == b"r":
        return Raised(bool(cursor.take(1)[0]), cursor.text(), cursor.text())
    if tag == b"l":
        count = cursor.number()
        return list(struct.unpack(f"<{count}d", cursor.take(8 * count)))
    if tag == b"t" and depth == 0:
        return [_unpack_step(cursor) for _ in range(_bounded(cursor))]
    if tag == b"x":
        return Foreign(cursor.text())
    raise BadFrame("a value of a kind that the grader doesn't write")


def _unpack_step(cursor: _Cursor) -> dict[str, object]:
    step = {}
    for _ in range(_bounded(cursor)):
        name = cursor.name()
        step[name] = _unpack(_Cursor(cursor.take(cursor.number())), depth=1)
    return step


def _bounded(cursor: _Cursor) -> int:
    count = cursor.number()
    if count > min(cursor.left, MOST_STEPS):
        raise BadFrame("a list that is longer than its frame, or than any test's")
    return count


def _unpack_tensor(cursor: _Cursor) -> Tensor:
    code, ndim = cursor.take(2)
    if code >= len(DTYPES) or ndim > MOST_DIMENSIONS:
        raise BadFrame("a tensor of an unknown form")
    shape, dtype = struct.unpack(f"<{ndim}Q", cursor.take(8 * ndim)), DTYPES[code]
    count = math.prod(shape)
    if count * dtype.itemsize != cursor.left or any(size >= 1 << 62 for size in shape):
        raise BadFrame("a tensor whose numbers don't fill its shape")
    # A copy: a tensor that shared the frame's memory could not be written to, and torch would say so.
    flat = torch.frombuffer(bytearray(cursor.take(cursor.left)), dtype=dtype) if count else torch.empty(0)
    try:
        return flat.to(dtype).reshape(shape)
    except RuntimeError:
        raise BadFrame("a tensor of a shape that can't be") from None
