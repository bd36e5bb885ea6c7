"""Ends: the submission stops its process or its test, in the hope that silence counts as a pass."""

from __future__ import annotations

from tests.attacks.case import NONE, Case, but, right, wrong

CASES = [
    Case(
        "exit-01-os_exit0-at-import",
        wrong("import os\nos._exit(0)"),
        NONE,
        said=("ended itself .*import",),
    ),
    Case("exit-02-sys_exit0-at-import", right("import sys\nsys.exit(0)"), NONE, said=("SystemExit",)),
    Case(
        "exit-03-os_exit0-in-function",
        right(bodies={"lr_wsd": "import os\nos._exit(0)"}),
        but(6),
        said=("ended itself",),
    ),
    Case(
        "exit-04-systemexit-in-function",
        right(bodies={"lr_wsd": "raise SystemExit(0)"}),
        but(6),
        said=("SystemExit",),
    ),
    Case(
        "exit-05-keyboardinterrupt",
        right(bodies={"cross_entropy": "raise KeyboardInterrupt"}),
        but(3, 7),
        said=("KeyboardInterrupt",),
    ),
    Case(
        "exit-06-skip",
        right(
            bodies={
                "lr_cosine": "import unittest\nraise unittest.SkipTest('not today')",
                "lr_wsd": "import pytest\npytest.skip('not today')",
            }
        ),
        but(6),
        said=("skip|SkipTest",),
    ),
    Case(
        "exit-07-xfail",
        right(bodies={"lr_cosine": "import pytest\npytest.xfail('as expected')"}),
        but(6),
    ),
    Case(
        "own-ends-again-and-again",
        right(bodies={"cross_entropy": "import os\nos._exit(0)"}),
        but(3, 7),
        said=("3 tests .*ended",),
    ),
    Case(
        "own-exec-of-another-program",
        wrong(
            "import os, sys\n"
            "os.execv(sys.executable, [sys.executable, '-S', '-c', 'print(\"REACHED\", flush=True)'])"
        ),
        NONE,
    ),
    Case(
        "own-exit-through-a-finalizer",
        wrong(
            """
            import atexit, os, sys, weakref


            class Last:
                def __del__(self):
                    os._exit(0)


            keep = Last()
            weakref.finalize(keep, os._exit, 0)
            atexit.register(os._exit, 0)
            sys.exitfunc = lambda: os._exit(0)
            """
        ),
        NONE,
    ),
    Case(
        "own-end-by-an-exception-that-is-left-out",
        wrong(
            """
            torch.equal = torch.allclose = lambda *_, **__: True
            raise RuntimeError("the rest is not needed")
            """,
            end="""
            for name in list(globals()):
                globals()[name] = lambda *_, **__: 0.0
            assert False, 'all is well'
            """,
        ),
        NONE,
        said=("left out: exercise.py line",),
    ),
    Case(
        "own-notimplemented-for-ever",
        right(bodies={"lr_wsd": "raise NotImplementedError('passed')"}),
        but(6),
        said=("to do",),
    ),
    Case(
        "own-exception-that-cannot-be-shown",
        right(
            """
            class Silent(BaseException):
                def __str__(self):
                    raise Silent()

                __repr__ = __str__
            """,
            {"lr_wsd": "raise Silent()"},
        ),
        but(6),
    ),
    Case(
        "own-crash-of-the-interpreter",
        right(bodies={"lr_wsd": "import ctypes\nctypes.string_at(0)"}),
        but(6),
        said=("SIGSEGV|signal 11|ended itself|crash",),
    ),
    Case(
        "own-recursion-without-an-end",
        right(
            "import sys",
            {"lr_wsd": "sys.setrecursionlimit(10**9)\nf = lambda: f()\nreturn f()"},
        ),
        but(6),
    ),
]
