"""Implementations: fresh modules, one-line errors, stubs, mistakes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from grader.advice import LACKS
from grader.checks import MissingName
from grader.course import CourseError, Mistake
from grader.implementations import (
    BrokenImplementation,
    apply_mistake,
    left_out_line,
    load,
    make_stub,
    written_names,
)
from tests.tiny_course import SOLUTION, make_course


def write(folder: Path, source: str | bytes) -> Path:
    path = folder / "exercise.py"
    path.write_bytes(source if isinstance(source, bytes) else source.encode())
    return path


def test_each_load_is_a_fresh_module(tmp_path: Path) -> None:
    path = write(tmp_path, "seen = []\n")
    load(path).seen.append(1)
    assert load(path).seen == []


def test_a_changed_file_is_compiled_anew(tmp_path: Path) -> None:
    assert load(write(tmp_path, "x = 1\n")).x == 1
    assert load(write(tmp_path, "x = 22\n")).x == 22


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("x = 1\ndef f(:\n", r"exercise.py line 2: invalid syntax: def f\(:"),
        (
            "import torch\n\nx = undefined\n",
            r"exercise.py line 3: NameError: name 'undefined' is not defined",
        ),
        ("import no_such_module\n", r"exercise.py line 1: ModuleNotFoundError"),
        ("raise SystemExit\n", r"exercise.py line 1: SystemExit"),
        (b"x = '\xff'\n", r"exercise.py line 1: .*utf-8"),
        (b"x = 1\0\n", r"exercise.py.*null bytes"),
        ("x = " + "(" * 300 + ")" * 300, r"exercise.py"),
    ],
)
def test_a_broken_file_is_one_line(tmp_path: Path, source: str | bytes, said: str) -> None:
    with pytest.raises(BrokenImplementation, match=said) as caught:
        load(write(tmp_path, source))
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(BrokenImplementation, match="No such file"):
        load(tmp_path / "exercise.py")


def test_a_missing_name_says_which(tmp_path: Path) -> None:
    with pytest.raises(MissingName, match=r"exercise.py defines no 'half'"):
        _ = load(write(tmp_path, "")).half


@pytest.mark.parametrize(
    ("statement", "entry"),
    [
        ("assert x == 2, 'not two'", "line 3: AssertionError: not two"),
        ("y = undefined", "line 3: NameError: name 'undefined' is not defined"),
        ("y: int = undefined", "line 3: NameError: name 'undefined' is not defined"),
        ("print(x, 1 / 0)", "line 3: ZeroDivisionError: division by zero"),
        ("y = 1; z = f(x)", "line 3: TypeError: f() takes 0 positional arguments but 1 was given"),
        ("for i in range(3):\n    def g(): ...\n    f(i)", "line 3: TypeError: f() takes"),
        ("with open('/no/such/file') as file:\n    y = file.read()", "line 3: FileNotFoundError"),
        ("try:\n    f(1)\nfinally:\n    y = 1", "line 3: TypeError"),
        ("input('name? ')", "line 3: "),
        ("raise NotImplementedError('step 3')", "line 3: NotImplementedError: step 3"),
        ("raise ValueError", "line 3: ValueError"),
        ("torch.zeros(2, device='cuda')", "line 3: AssertionError; there is no GPU here"),
    ],
)
def test_a_statement_at_the_top_that_fails_is_left_out(tmp_path: Path, statement: str, entry: str) -> None:
    path = write(tmp_path, f"import torch; x = 1\ndef f(): return x\n{statement}\ndef last(): return 2\n")
    left_out: list[str] = []
    module = load(path, left_out)
    assert (module.f(), module.last()) == (1, 2)
    assert [one[: len(entry)] for one in left_out] == [entry]
    with pytest.raises((BrokenImplementation, NotImplementedError)):
        load(path)  # the course's own files may have no such line


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("from torch import no_such_name\n", "line 1: ImportError"),
        ("def f(x=undefined): ...\n", "line 1: NameError"),
        ("@undefined\ndef f(): ...\n", "line 1: NameError"),
        ("class A:\n    x = undefined\n", "line 2: NameError"),
        ("if True:\n    @undefined\n    def f(): ...\n", "line 2: NameError"),
        ("try:\n    import no_such_module\nfinally:\n    x = 1\n", "line 2: ModuleNotFoundError"),
        ("import sys\nsys.exit(0)\n", "line 2: SystemExit"),
        ("raise MemoryError\n", "line 1: MemoryError"),
        ("raise RuntimeError('DefaultCPUAllocator: not enough memory')\n", "line 1: RuntimeError"),
    ],
)
def test_what_defines_or_ends_is_never_left_out(tmp_path: Path, source: str, said: str) -> None:
    with pytest.raises(BrokenImplementation, match=said):
        load(write(tmp_path, source), [])


def test_a_module_that_is_missing_is_named_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(
        BrokenImplementation, match=rf"line 1: ModuleNotFoundError; it imports `utils`, {re.escape(LACKS)}$"
    ):
        load(write(tmp_path, "from utils.norms import x\n"), [])
    with pytest.raises(
        BrokenImplementation, match="; it imports from a folder of its own: only one file is graded"
    ):
        load(write(tmp_path, "from .utils import x, y\n"), [])


def test_what_was_left_out_is_named_where_it_may_be_the_reason(tmp_path: Path) -> None:
    path = write(tmp_path, "EPS = float('x')\ndef f(eps=EPS): ...\n")
    with pytest.raises(
        BrokenImplementation, match=r"exercise.py line 1: ValueError: .*; exercise.py line 2: Na"
    ):
        load(path, [])


def test_what_was_left_out_is_one_line(tmp_path: Path) -> None:
    left_out: list[str] = []
    path = write(tmp_path, "1 / 0\n" * 5)
    load(path, left_out)
    failed = [f"line {n}: ZeroDivisionError: division by zero" for n in (1, 2, 3)]
    assert left_out_line(path, left_out) == f"left out: exercise.py {'; '.join(failed)}; and 2 more"
    assert left_out_line(path, []) == ""


def test_a_file_in_pieces_is_the_file(tmp_path: Path) -> None:
    source = """Words."""
    path = write(
        tmp_path,
        '"""Words."""\nfrom __future__ import annotations\nx: Unknown = 1\ndef f(y: Unknown): ...\n',
    )
    module = load(path)
    assert (module.__doc__, module.x, module.f.__annotations__) == (source, 1, {"y": "Unknown"})


SOURCE = '''"""The solution."""

import math

LIMIT = 3
_SECRET = 4


# how it is done
def _helper(x):
    return x * _SECRET


@staticmethod
def double(x: float) -> float:
    """Twice x.

    Source: nobody.
    """
    y = _helper(x)
    return y / 2


def given(x):
    return x


class Half:
    """Halves."""

    def __init__(self):
        self.by = 2

    def half(self, x):
        return self._divide(x)

    def _divide(self, x):
        return x / self.by
'''


def test_a_stub_keeps_contracts_and_drops_bodies_and_helpers(tmp_path: Path) -> None:
    lab = make_course(tmp_path).labs[0]
    step = lab.steps[1].model_copy(update={"todo": ("Half.half",)})
    stub = make_stub(SOURCE, lab.model_copy(update={"steps": (lab.steps[0], step)}))
    assert stub.startswith('"""Lab 01: Tiny.')
    body = stub.split('"""\n', 1)[1]
    assert (
        body
        == '''
import math

LIMIT = 3


@staticmethod
def double(x: float) -> float:
    """Twice x.

    Source: nobody.
    """
    raise NotImplementedError("lab 01, step 1: double (README section 1)")


def given(x):
    return x


class Half:
    """Halves."""

    def __init__(self):
        self.by = 2

    def half(self, x):
        raise NotImplementedError("lab 01, step 2: Half.half (README section 2)")
'''
    )


def test_a_stub_of_a_solution_without_a_listed_name_is_refused(tmp_path: Path) -> None:
    lab = make_course(tmp_path).labs[0]
    with pytest.raises(CourseError, match=r"does not define 'half', which lab.toml lists"):
        make_stub("def double(x):\n    return 2 * x\n", lab)


def test_written_names_are_those_whose_bodies_no_longer_raise(tmp_path: Path) -> None:
    lab = make_course(tmp_path).labs[0]
    stub = make_stub(SOLUTION, lab)
    assert written_names(stub, lab) == []
    assert written_names(stub.replace('raise NotImplementedError("lab 01, step 1', 'return ("'), lab) == [
        "double"
    ]
    assert written_names("def double(:", lab) == ["double", "half"]


def mistake(find: str, replace: str = "") -> Mistake:
    return Mistake(
        id="m", step="double", name="n", symptom="s", cause="c", hint="h", find=find, replace=replace
    )


def test_a_mistake_is_an_edit_that_applies_exactly_once() -> None:
    assert apply_mistake("a + b", mistake("+", "-")) == "a - b"
    for find, count in (("x", 0), ("a", 2)):
        with pytest.raises(CourseError, match=f"occurs {count} times"):
            apply_mistake("a + a", mistake(find))
