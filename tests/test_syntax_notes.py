"""Code that is no Python is named by its cause, where the cause has a name."""

from __future__ import annotations

import sys

import pytest

from grader.syntax_notes import syntax_error, syntax_note


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


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="this Python knows them")
@pytest.mark.parametrize(
    "line",
    [
        'x = f"{d["a"]}"',
        'x = f"{\', \'.join("ab")}"',
        "x = f\"{'\\n'.join(a)}\"",
        "type X = int",
        "def f[T](x): pass",
        "class A[T]: pass",
    ],
)
def test_syntax_of_a_newer_python_is_named_with_the_version(line: str) -> None:
    assert syntax_note(f"d = 1\n{line}\n").startswith("line 2: Python 3.12 or newer is needed for ")


@pytest.mark.parametrize(
    "source",
    ["", "x = 1\n", "x = (\n", "if x\n    pass\n", "x = '“–”\u00a0'  # “”\n", "x = '\\d'\n", "x = 1\0\n"],
)
def test_code_that_parses_and_ordinary_mistakes_have_no_note(source: str) -> None:
    assert syntax_note(source) == ""


@pytest.mark.parametrize(
    "source", ["-" * 200_000 + "1", "(" * 200_000, "a" + ".a" * 120_000, "x" + "()" * 99_999]
)
def test_code_nested_beyond_reason_ends_nothing(source: str) -> None:
    assert syntax_error(source) is not None
    assert syntax_note(source) == ""
