"""The jail's filter of system calls, run as a program: also for the machine that this is not."""

from __future__ import annotations

import errno
import functools
import re
import struct
from pathlib import Path

import pytest

from grader import jail


def answer(program: bytes, architecture: int, number: int, *arguments: int) -> int:
    """Run a filter as the kernel would; return its errno, or 0 if the call is allowed."""
    given = [argument & (2**64 - 1) for argument in (*arguments, *[0] * 6)[:6]]
    data = struct.pack("<IIQ6Q", number, architecture, 0, *given)
    at = accumulator = 0
    while True:
        code, if_true, if_false, value = struct.unpack_from("HBBI", program, 8 * at)
        at += 1
        if code == 0x20:
            accumulator = struct.unpack_from("<I", data, value)[0]
        elif code == 0x54:
            accumulator &= value
        elif code == 0x15:
            at += if_true if accumulator == value else if_false
        elif code == 0x25:
            at += if_true if accumulator > value else if_false
        else:
            assert code == 0x06
            return 0 if value == 0x7FFF0000 else value - 0x50000


ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
PID = 4321
EXPECTED = [  # call, arguments, answer
    ("clone", (0x3D0F00,), 0),  # what libc asks for a thread
    ("clone", (0x1200011,), errno.EPERM),  # what it asks for a process
    ("clone", (0x3D0F00 | 0x10000000,), errno.EPERM),  # a thread in a new namespace
    ("clone3", (), errno.ENOSYS),
    ("openat2", (), errno.ENOSYS),
    ("kill", (PID, 9), 0),
    ("kill", (PID + 1, 9), errno.EPERM),
    ("kill", (0, 9), errno.EPERM),
    ("kill", (-PID, 9), errno.EPERM),
    ("kill", (PID + (1 << 32), 9), 0),  # the kernel, too, reads the lower half only
    ("tgkill", (PID, 77, 6), 0),
    ("tgkill", (1, 1, 6), errno.EPERM),
    ("sched_setaffinity", (0, 8, 0), 0),
    ("sched_setaffinity", (PID - 1, 8, 0), errno.EPERM),
    ("prlimit64", (0, 7, 0, 0x7FFF), 0),
    ("prlimit64", (PID, 7, 0, 0x7FFF), 0),
    ("prlimit64", (1, 7, 0, 0x7FFF), errno.EPERM),
    ("prlimit64", (0, 7, 0x7FFF, 0), errno.EPERM),
    ("prlimit64", (0, 7, 1 << 40, 0), errno.EPERM),  # a new limit at an address whose lower half is 0
    ("setrlimit", (7, 0x7FFF), errno.EPERM),
    ("prctl", (15, 0), 0),  # the name of a thread
    ("prctl", (1, 0), errno.EPERM),
    ("prctl", (4, 1), errno.EPERM),
    ("ioctl", (0, 0x5401), 0),
    ("ioctl", (0, 0x5412), errno.EPERM),
    ("ioctl", (0, 0x5412 + (1 << 32)), errno.EPERM),
    ("fcntl", (0, 3), 0),
    ("fcntl", (0, 8, 1), errno.EPERM),
    ("fcntl", (0, 15, 0), errno.EPERM),
    ("mmap", (0, 8 << 20, 0, 0x20022), 0),
    ("mmap", (0, 32 << 10, 0, 0x20022), errno.EPERM),
    ("mmap", (0, 32 << 10, 0, 0x22), 0),
    ("mmap", (0, 1 << 32, 0, 0x20022), 0),
    ("openat", (-100, 0, 0o1101), 0),
    ("openat", (-100, 0, 0o1000), errno.EPERM),
    ("openat", (-100, 0, 0o1003), errno.EPERM),
    ("socket", (2, 1, 0), errno.EPERM),
    ("io_uring_setup", (8, 0), errno.EPERM),
]


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_filter_answers_as_written_on_every_machine(machine: str) -> None:
    program, numbers = jail.filter_program(machine, PID), jail.system_calls(machine)
    ask = functools.partial(answer, program, ARCHITECTURES[machine])
    given = [(name, args, ask(numbers[name], *args)) for name, args, _ in EXPECTED]
    assert given == EXPECTED
    judged = {name for name, _, _ in EXPECTED} | {"open"}
    assert {ask(number) for name, number in numbers.items() if name not in judged} == {errno.EPERM}


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_filter_knows_neither_other_machines_nor_new_calls(machine: str) -> None:
    program = jail.filter_program(machine, PID)
    (other,) = set(ARCHITECTURES.values()) - {ARCHITECTURES[machine]}
    write = {"x86_64": 1, "aarch64": 64}[machine]
    assert answer(program, ARCHITECTURES[machine], write) == 0
    assert answer(program, other, write) == errno.EPERM
    assert answer(program, 0x40000003, 4) == errno.EPERM  # 32-bit x86
    assert answer(program, ARCHITECTURES[machine], 0x40000000 + 1) == errno.ENOSYS  # x32
    assert answer(program, ARCHITECTURES[machine], 463) == errno.ENOSYS  # setxattrat, of 2025


HEADERS = {"x86_64": "x86_64-linux-gnu/asm/unistd_64.h", "aarch64": "asm-generic/unistd.h"}


@pytest.mark.parametrize("machine", HEADERS)
def test_numbers_are_those_of_the_kernel_headers(machine: str) -> None:
    header = Path("/usr/include", HEADERS[machine])
    if not header.exists():
        pytest.skip(f"{header} is not installed")
    found = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text())
    numbers = {name: int(number) for name, number in found}
    listed = jail.system_calls(machine)
    assert {name: numbers.get(name) for name in listed} == listed
    missing = jail.system_calls("x86_64").keys() - listed.keys()
    assert not missing & numbers.keys()
