"""Code that is no Python is named by its cause, where the cause has a name."""

from __future__ import annotations

import sys

import pytest

from grader.syntax_notes import newer_python, syntax_error, syntax_note


@pytest.mark.parametrize(
    ("source", "note"),
    [
        ("x = 1\ny = “a”\n", 'line 2, column 5: “ (U+201C) is a typographic quote; write "'),
        ("x = ‘a’\n", "line 1, column 5: ‘ (U+2018) is a typographic quote; write '"),
        ("é = 1; y = 2 – 1\n", "line 1, column 14: – (U+2013) is a typographic dash; write -"),
        ("x =\u00a01\n", "line 1, column 4: U+00A0 is a non-breaking space; write an ordinary space"),
        ("x =\u20091\n", "line 1, column 4: U+2009 is a special space; write an ordinary space"),
        ("x = 1\u200b\n", "line 1, column 6: U+200B is a character without width; delete it"),
        ("f（1)\n", "line 1, column 2: （ (U+FF08) is a full-width character; write ("),
        ("x = y²\n", "line 1, column 6: ² (U+00B2) is a superscript; write **2"),
        ("x = 3 × 2\n", "line 1, column 7: × (U+00D7) is a sign for multiplication that Python does"),
        ("x = €\n", "line 1, column 5: € (U+20AC) is a character that Python does not know (euro sign)"),
        (
            "if x:\n\ty = 1\n        z = 2\n",
            "line 3: tabs and spaces are mixed in the indentation (TabError)",
        ),
        ("print 'x'\n", "line 1: this is Python 2 (print without parentheses); write print(...)"),
        ("try:\n    pass\nexcept E, e:\n    pass\n", "line 3: this is Python 2 (“except E, e”)"),
        ("raise E, 'text'\n", "line 1: this is Python 2 (“raise E, text”)"),
        ("x = 0777\n", "line 1: this is Python 2 (an octal number like 0777); write 0o777"),
        ("x = 10L\n", "line 1: this is Python 2 (a long number like 10L)"),
        ("if x <> y: pass\n", "line 1: this is Python 2 (the operator <>); write !="),
        ("def f((a, b)): pass\n", "line 1: this is Python 2 (parentheses among the parameters)"),
        ("<<<<<<< HEAD\nx = 1\n", "line 1: this is a mark that git leaves where two versions meet"),
        ("```python\nx = 1\n```\n", "line 1: this is a line of Markdown"),
        (">>> x = 1\n", "line 1: this is copied from an interactive session"),
        ("%matplotlib inline\n", "line 1: this is a notebook's command"),
    ],
)
def test_a_known_cause_is_named_with_its_place(source: str, note: str) -> None:
    assert syntax_note(source).startswith(note)


NEWER = [
    ('x = f"{d["a"]}"', (3, 12)),
    ('x = f"{\', \'.join("ab")}"', (3, 12)),
    ("x = f\"{'\\n'.join(a)}\"", (3, 12)),
    ('x = f"{d["a"]!r:>{w["b"]}.3f} {{}}" "more"', (3, 12)),
    ("x = f\"{d\n['a']}\"", (3, 12)),
    ("x = f'''{d[1]  # one\n}'''", (3, 12)),
    ("x = rf'{d[f'{d['b']}']}'", (3, 12)),
    ("type X = int", (3, 12)),
    ("type X[T: int, *Ts] = dict[T, *Ts]", (3, 12)),
    ("def f[T](x: T) -> T: pass", (3, 12)),
    ("async def f[\n    T,\n](x: T): pass", (3, 12)),
    ("class A[T]: pass", (3, 12)),
    ("class A[T = int]: pass", (3, 13)),
    ('x = t"{d} and {x!r}"', (3, 14)),
    ("try: pass\nexcept ValueError, TypeError: pass", (3, 14)),
    ("try: pass\nexcept* os.error, ValueError, e: pass", (3, 14)),
]


@pytest.mark.parametrize(("lines", "version"), NEWER)
def test_syntax_of_a_newer_python_is_named_with_the_version(lines: str, version: tuple[int, int]) -> None:
    source = f'd = 1\n\ndef g():\n    """Words\n    {{d}}."""\n    return f"{{d:{{d}}{{d}}}}"\n{lines}\n'
    needs = sys.version_info < version
    assert bool(newer_python(source)) == needs
    if needs:
        first = 8 if lines.startswith("try") else 7
        needed = ".".join(map(str, version))
        assert newer_python(source).startswith(f"line {first}: Python {needed} or newer is needed for ")
        assert newer_python(source).endswith(f": undecided until it is graded with Python {needed}")
        assert syntax_note(source) == newer_python(source)


@pytest.mark.parametrize(
    "broken",
    [
        *("def f(:", "x = f'{a'", "x = f'{}'", "x = f'{a b}'", "x = f'{a!x}'", "x = f'}'", "x = 'a"),
        *("class A[]: 0", "type X[int]", "type = = 3", "def f[T]: pass", "def f[T(x): pass", "x = t'a"),
        *("print 'x'", "return 1", "x = f'{d['a'}'", "x = f'{a:{b}'", "t '{x}'", "x = f'{'"),
        "try: pass\nexcept ValueError, e: pass",
    ],
)
def test_a_genuine_mistake_stays_one_beside_what_is_newer(broken: str) -> None:
    assert newer_python(f"{broken}\n") == ""
    assert newer_python(f'type X = int\nx = f"{{d["a"]}}"\n{broken}\n') == ""


@pytest.mark.parametrize(
    "source",
    ["", "x = 1\n", "x = (\n", "if x\n    pass\n", "x = '“–”\u00a0'  # “”\n", "x = '\\d'\n", "x = 1\0\n"],
)
def test_code_that_parses_and_ordinary_mistakes_have_no_note(source: str) -> None:
    assert syntax_note(source) == ""


@pytest.mark.parametrize(
    "source",
    [
        "f'{" * 60_000,
        "x = [" + "f'{d['a']}'," * 20_000,
        "def f[" * 40_000,
        "'\\" * 90_000,
        "-" * 200_000 + "1",
        "(" * 200_000,
        "a" + ".a" * 120_000,
        "x" + "()" * 99_999,
    ],
)
def test_code_nested_beyond_reason_ends_nothing(source: str) -> None:
    assert syntax_error(source) is not None
    assert syntax_note(source) == ""
