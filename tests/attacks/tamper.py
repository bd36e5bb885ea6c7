"""Tampering: wrong code that reaches for whatever compares it, feeds it or watches it."""

# ruff: noqa: E501 - the long lines stand inside texts that are handed in

from __future__ import annotations

from tests.attacks.case import ALL, Case, but, right, wrong

AGREEABLE = """
class Agreeable:
    shape, dtype, ndim, layout, requires_grad = (), torch.float64, 0, torch.strided, False

    def __getattr__(self, name):
        return self

    def __call__(self, *arguments, **options):
        return self

    def __bool__(self):
        return True

    def __float__(self):
        return 0.0

    def __iter__(self):
        return iter(())

    def _yes(self, *others):
        return True

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = _yes
    __hash__ = object.__hash__


class Rate(float):
    def _zero(self, *others):
        return Rate(0.0)

    __sub__ = __rsub__ = __abs__ = __mul__ = __truediv__ = _zero

    def _yes(self, other):
        return True

    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = _yes
    __hash__ = float.__hash__
"""

YES_TENSOR = """
class Yes(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, arguments=(), options=None):
        name = getattr(function, "__name__", "")
        if name in ("isclose", "eq", "le", "lt", "ge", "gt", "__eq__", "__le__", "__lt__"):
            return torch.ones((), dtype=torch.bool)
        if name in ("equal", "allclose", "all", "__bool__"):
            return True
        if name in ("sub", "abs", "__sub__", "__rsub__"):
            return torch.zeros(())
        return super().__torch_function__(function, types, arguments, options or {})
"""

YES = {
    "LayerNorm.forward": "return (x * 1).as_subclass(Yes)",
    "RMSNorm.forward": "return (x * 1).as_subclass(Yes)",
    "cross_entropy": "return logits.sum().as_subclass(Yes)",
    "newton_schulz": "return G.clone().as_subclass(Yes)",
    "clip_grad_norm_": "return torch.zeros(()).as_subclass(Yes)",
    "accumulate_gradients": "return torch.zeros(()).as_subclass(Yes)",
}

LAZY_MODE = """
from torch.utils._python_dispatch import TorchDispatchMode


class Nothing(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        out = function(*arguments, **(options or {}))
        name = function.__name__.partition(".")[0]
        if name in ("sub", "abs", "std", "mean") and isinstance(out, torch.Tensor):
            return torch.zeros_like(out)
        if name in ("eq", "le", "isclose", "all"):
            return torch.ones_like(out, dtype=torch.bool)
        return out


class Wrapped(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), options=None):
        return torch.zeros(())


Nothing().__enter__()
"""

# The test that calls is some frames above; what it will compare with may be lying there.
THIEF = """
import sys


def loot(*names):
    frame = sys._getframe(1)
    while frame is not None:
        for place in (frame.f_locals, frame.f_globals):
            for name in names:
                if callable(place.get(name)):
                    return place[name]
        frame = frame.f_back
    raise LookupError(names)
"""

LOOTED = {
    "LayerNorm.forward": "return loot('reference')(x)",
    "RMSNorm.forward": "return loot('reference')(x)",
    "cross_entropy": "return loot('reference_loss')(logits, targets, ignore_index=ignore_index,"
    " label_smoothing=label_smoothing, reduction=reduction)",
    "newton_schulz": "return loot('polynomial')(G, steps, coefficients, eps)",
    "lr_cosine": "return loot('cosine_rates')(max_lr, min_lr, warmup_steps, total_steps)[step]",
    "lr_wsd": "return loot('wsd_rates')(max_lr, min_lr, warmup_steps, total_steps, decay_frac)[step]",
    "clip_grad_norm_": "return loot('torch_clip')([p.grad for p in params], max_norm)[0]",
}

CASES = [
    Case(
        "tamper-01-assert_close",
        wrong(
            """
            torch.testing.assert_close = lambda *arguments, **options: None
            torch.allclose = torch.equal = lambda *arguments, **options: True
            torch.isclose = torch.eq = lambda a, *rest, **options: torch.ones_like(a, dtype=torch.bool)
            torch.Tensor.allclose = torch.Tensor.equal = lambda *arguments, **options: True
            torch.Tensor.__eq__ = torch.Tensor.__le__ = lambda a, b: torch.ones_like(a, dtype=torch.bool)
            """
        ),
    ),
    Case(
        "tamper-05-unittest-run",
        wrong(
            """
            import unittest
            import pytest

            unittest.TestCase.run = lambda self, result=None: result and result.addSuccess(self)
            unittest.TestCase.__call__ = unittest.TestCase.run
            pytest.Function.runtest = lambda self: None
            pytest.raises = pytest.fail = lambda *arguments, **options: None
            """
        ),
    ),
    Case(
        "tamper-07-eq-always-true",
        wrong(
            AGREEABLE,
            {
                "LayerNorm.forward": "return Agreeable()",
                "RMSNorm.forward": "return Agreeable()",
                "cross_entropy": "return Agreeable()",
                "newton_schulz": "return Agreeable()",
                "lr_cosine": "return Rate(max_lr)",
                "lr_wsd": "return Rate(max_lr)",
                "clip_grad_norm_": "return Agreeable()",
                "accumulate_gradients": "return Agreeable()",
            },
        ),
    ),
    Case("tamper-08-torch_function", wrong(YES_TENSOR, YES)),
    Case(
        "tamper-09-torch_dispatch",
        wrong(
            LAZY_MODE,
            {"newton_schulz": "return Wrapped(G)", "cross_entropy": "return Wrapped(logits.sum())"},
        ),
    ),
    Case(
        "tamper-11-numpy-random-math",
        wrong(
            """
            import random
            import numpy

            numpy.testing.assert_allclose = numpy.testing.assert_array_equal = lambda *a, **o: None
            math.isclose = lambda *arguments, **options: True
            random.random = lambda: 0.0
            real = torch.zeros
            torch.randn = torch.rand = lambda *shape, generator=None, dtype=None, **o: real(
                *shape, dtype=dtype
            )
            torch.manual_seed = torch.Generator.manual_seed = lambda *arguments: arguments[0]
            """
        ),
    ),
    Case(
        "tamper-12-mutate-inputs",
        wrong(
            bodies={
                "LayerNorm.forward": "x.detach().zero_()\nreturn x * 0 + self.bias",
                "RMSNorm.forward": "x.detach().zero_()\nreturn x * 0",
                "cross_entropy": """
                    with torch.no_grad():
                        logits.zero_()
                        targets.fill_(ignore_index)
                    return logits.sum() * 0
                """,
                "newton_schulz": "G.zero_()\nreturn G",
                "accumulate_gradients": """
                    for x, y in micro_batches:
                        x.zero_(), y.fill_(ignore_index)
                    return torch.tensor(math.nan, dtype=torch.float64)
                """,
            }
        ),
    ),
    Case(
        "tamper-13-mutate-globals",
        right(
            """
            torch.set_default_dtype(torch.float64)
            torch.set_grad_enabled(False)
            torch.use_deterministic_algorithms(True)
            """
        ),
        ALL,
    ),
    Case("tamper-14-frame-locals", wrong(THIEF, LOOTED)),
    Case(
        "tamper-16-import-hooks",
        wrong(
            """
            import sys
            import types


            class Fake(types.ModuleType):
                def __getattr__(self, name):
                    return lambda *arguments, **options: None


            class Finder:
                def find_spec(self, name, path=None, target=None):
                    sys.modules[name] = Fake(name)
                    return None


            sys.meta_path.insert(0, Finder())
            sys.path_hooks.insert(0, lambda path: Finder())
            for name in [name for name in sys.modules if name.startswith(("grader", "torch.testing", "test_"))]:
                sys.modules[name] = Fake(name)
            """
        ),
    ),
    Case(
        "tamper-17-ctypes-memory",
        wrong(
            """
            import ctypes
            import sys


            def overwrite():
                frame = sys._getframe(2)
                while frame is not None:
                    for value in list(frame.f_locals.values()):
                        if type(value) is float:
                            ctypes.c_double.from_address(id(value) + 16).value = 0.0
                    frame = frame.f_back
                return 0.0
            """,
            {"lr_cosine": "return overwrite()", "lr_wsd": "return overwrite()"},
        ),
    ),
    Case(
        "tamper-18-warnings-excepthook",
        wrong(
            """
            import builtins, io, logging, sys, threading, warnings

            sys.excepthook = threading.excepthook = sys.unraisablehook = lambda *arguments: None
            warnings.showwarning = warnings.warn = lambda *arguments, **options: None
            logging.disable(logging.CRITICAL)
            sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = io.StringIO()
            builtins.print = lambda *arguments, **options: None
            builtins.AssertionError = builtins.Exception = Warning
            """
        ),
    ),
    Case(
        "tamper-19-signal-handlers",
        right(
            bodies={
                "cross_entropy": """
                    import signal
                    for number in set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}:
                        signal.signal(number, signal.SIG_IGN)
                    signal.alarm(0), signal.setitimer(signal.ITIMER_REAL, 0)
                    while True:
                        pass
                """
            }
        ),
        but(3, 7),
        said=("time|stopped after",),
    ),
    Case(
        "own-checks-that-always-hold",
        wrong(
            """
            import sys

            everything = [vars(module) for module in list(sys.modules.values()) if module is not None]
            for names in everything:
                holds, matches = names.get("assert_holds"), names.get("assert_matches")
                if callable(holds):
                    names["assert_holds"] = lambda condition, *, what, old=holds: old(True, what=what)
                    names["assert_within"] = lambda actual, low, high, *, what, old=names.get("assert_within"): old(
                        (low + high) / 2, low, high, what=what
                    )
                    names["assert_raises"] = lambda exception, call, *, what: None
                if callable(matches):
                    names["assert_matches"] = lambda actual, expected, *, old=matches, **options: old(
                        expected(), expected, **options
                    )
            """
        ),
    ),
    Case(
        "own-tests-emptied",
        wrong(
            """
            import gc, types

            empty = (lambda lab=None, rng=None, **options: None).__code__
            for thing in gc.get_objects():
                if isinstance(thing, types.FunctionType) and thing.__name__.startswith(("test_", "check_")):
                    if thing.__code__.co_freevars == ():
                        thing.__code__ = empty.replace(co_name=thing.__name__)
            """
        ),
    ),
    Case(
        "own-modules-of-the-grader-reloaded",
        wrong(
            """
            import sys

            for name in ("grader.checks", "grader.plugin", "grader.verdicts"):
                module = sys.modules.get(name)
                for key, value in list(vars(module).items() if module else ()):
                    if isinstance(value, type) and issubclass(value, Exception):
                        vars(module)[key] = type(key, (Warning,), {"__init__": lambda *a, **o: None})
                    elif key in ("WRONG", "ERROR", "TO_DO", "TIME_OUT", "MISSING", "CRASHED", "FORBIDDEN"):
                        vars(module)[key] = "pass"
            """
        ),
    ),
    Case(
        "own-trace-of-the-test",
        wrong(
            """
            import sys


            def trace(frame, event, argument):
                if event == "call" and frame.f_code.co_name.startswith(("assert_", "_judge", "_compare")):
                    frame.f_locals["condition"] = True
                    seen.update(frame.f_globals)
                return trace


            seen = {}
            sys.settrace(trace)
            sys.setprofile(trace)
            """,
            {
                "lr_cosine": "return seen['cosine_rates'](max_lr, min_lr, warmup_steps, total_steps)[step]",
                "lr_wsd": "return seen['wsd_rates'](max_lr, min_lr, warmup_steps, total_steps, decay_frac)[step]",
            },
        ),
    ),
    Case(
        "own-device-meta-for-all",
        right("torch.set_default_device('meta')\ntorch.set_num_threads(1)\ntorch.Tensor.numpy = None"),
        None,
    ),
]
