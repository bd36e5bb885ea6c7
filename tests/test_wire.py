"""The wire: values arrive as they were, whatever else arrives is refused."""

from __future__ import annotations

import io
import math
import random
import struct

import pytest
import torch
from torch import Tensor, nn

from grader.comparison import Foreign, Raised
from grader.verdicts import PASS
from grader.wire import DTYPES, FRAME_BYTES, BadFrame, Ended, pack_end, pack_value, unpack


def crossed(value: object) -> object:
    ((_, back),) = unpack(io.BytesIO(pack_value(value)).read)
    return back


def forged(tag: bytes, payload: bytes = b"") -> bytes:
    return struct.pack("<cI", b"V", len(tag + payload)) + tag + payload


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_tensor_crosses_with_every_bit(dtype: torch.dtype) -> None:
    value = torch.arange(6).to(dtype).reshape(2, 3).t()
    back = crossed(value)
    assert isinstance(back, Tensor)
    assert back.dtype == dtype
    assert back.shape == (3, 2)
    assert torch.equal(back, value)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,) * 8], ids=str)
def test_shapes_with_nothing_or_little_in_them_cross(shape: tuple[int, ...]) -> None:
    back = crossed(torch.zeros(shape))
    assert isinstance(back, Tensor)
    assert tuple(back.shape) == shape


def test_nan_and_infinity_keep_their_bits() -> None:
    value = torch.tensor([math.nan, math.inf, -math.inf, -0.0], dtype=torch.float64)
    back = crossed(value)
    assert isinstance(back, Tensor)
    assert torch.equal(back.view(torch.int64), value.view(torch.int64))


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        False,
        0,
        -7,
        (1 << 63) - 1,
        -(1 << 63),
        0.1,
        math.inf,
        [0.5, -1.5],
        [],
        "r",
        Raised(True, "ValueError"),
    ],
    ids=str,
)
def test_plain_values_cross(value: object) -> None:
    assert crossed(value) == (Foreign("a str") if value == "r" else value)


def test_a_whole_number_beyond_64_bits_crosses_as_a_description_only() -> None:
    assert crossed(1 << 63) == crossed(-(10**400)) == Foreign("an int beyond 64 bits")


def test_a_trajectory_crosses() -> None:
    back = crossed([{"update": torch.ones(2), "lr": 0.5}, {"update": torch.zeros(0), "lr": 1.0}])
    assert isinstance(back, list)
    assert [step["lr"] for step in back] == [0.5, 1.0]
    assert torch.equal(back[0]["update"], torch.ones(2))


class Liar(Tensor):
    """Answers every question about itself as it likes."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        return torch.ones(2)


def test_what_is_no_exact_tensor_crosses_as_a_description_only() -> None:
    for value in (
        torch.ones(2).as_subclass(Liar),
        torch.ones(2, device="meta"),
        torch.eye(2).to_sparse(),
        object(),
    ):
        assert isinstance(crossed(value), Foreign)
    assert isinstance(crossed(nn.Parameter(torch.ones(2))), Tensor)


def test_what_is_too_large_crosses_as_a_description_only() -> None:
    back = crossed(torch.zeros(FRAME_BYTES // 4 + 1))
    assert isinstance(back, Foreign)
    assert "more than 4 MiB" in back.kind
    assert isinstance(crossed([0.0] * (FRAME_BYTES // 8 + 1)), Foreign)


def test_a_trajectory_without_an_end_crosses_as_a_description_only() -> None:
    assert isinstance(crossed([{}] * 1001), Foreign)


def test_an_end_crosses_cut_and_printable() -> None:
    ((kind, ended),) = unpack(
        io.BytesIO(pack_end(Ended(PASS, "\x1b[31m" + "x" * 9000 + "\n" * 50, "E"))).read
    )
    assert isinstance(ended, Ended)
    assert kind == b"E"
    assert "\x1b" not in ended.text
    assert len(ended.text) < 2000


def test_a_frame_that_was_cut_off_is_the_end() -> None:
    whole = pack_value(torch.ones(3))
    assert list(unpack(io.BytesIO(whole[:-1]).read)) == []
    assert len(list(unpack(io.BytesIO(whole + whole[:3]).read))) == 1


@pytest.mark.parametrize(
    "data",
    [
        b"hello, world",
        struct.pack("<cI", b"V", FRAME_BYTES + 1),
        struct.pack("<cI", b"P", 0),
        forged(b"q"),
        forged(b"n", b"left over"),
        forged(b"f", b"1234"),
        forged(b"l", struct.pack("<I", 1 << 30)),
        forged(b"t", struct.pack("<I", 1 << 30)),
        forged(b"t", struct.pack("<I", 2000) + b"\0" * 8000),
        forged(b"T", struct.pack("<BBQ", 0, 1, 3) + b"\0" * 8),
        forged(b"T", struct.pack("<BBQ", 99, 1, 1) + b"\0" * 8),
        forged(b"T", struct.pack("<BB", 0, 200)),
        forged(b"T", struct.pack("<BB3Q", 0, 3, 1 << 61, 1 << 61, 0)),
        forged(b"T", struct.pack("<BBQ", 0, 1, (1 << 64) - 1)),
    ],
    ids=range(14),
)
def test_forged_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(BadFrame):
        list(unpack(io.BytesIO(data).read))


def test_random_bytes_never_raise_anything_else() -> None:
    chance = random.Random(5)
    for _ in range(3000):
        tag = chance.choice([b"T", b"n", b"b", b"i", b"f", b"r", b"l", b"t", b"x"])
        data = forged(tag, chance.randbytes(chance.randrange(40)))
        try:
            list(unpack(io.BytesIO(data).read))
        except BadFrame:
            continue
