"""Honest code with an accident in it: it loses what the accident costs, and not a point more."""

# ruff: noqa: E501 - the long lines stand inside texts that are handed in

from __future__ import annotations

import sys

from tests.attacks.case import ALL, NONE, RIGHT, Case, but, right
from tests.attacks.handing_in import file_of, notebook_of

PYTHON_2 = 'def greet():\n    try:\n        print "hello"\n    except Exception, e:\n        pass\n'
NEW_SYNTAX = "type Rate = float\n"

HARMLESS = """
from __future__ import annotations
import abc, collections, copy, dataclasses, enum, functools, itertools, logging, math, numbers, random, sys, threading
import time, typing, warnings
import numpy as np
import torch
import torch.nn.functional as F
from collections import defaultdict
from matplotlib import pyplot as plt
from typing import Any, Callable, Iterable

log = logging.getLogger(__name__)
started = time.perf_counter()
lock = threading.Lock()


@dataclasses.dataclass
class Settings:
    gc: float = 1.0  # gradient clipping; __subclasses__, torch.library and eval( are only words here
    frame: str = "open('x')"

    def __post_init__(self):
        setattr(self, "seen", getattr(self, "frame", None))


@functools.lru_cache
def softmax(row):
    return [math.exp(one) for one in row]


def layer_norm(x):
    "Ours: calls neither F.layer_norm nor torch.nn.init."
    return x


class log_softmax:
    def eval(self):
        return self

    def exec(self, open=None):
        return open


settings = Settings()
warnings.warn("only a warning")
log.warning("python %s, torch %s", sys.version_info, torch.__version__)
log_softmax().eval().exec()
assert __name__ != "__main__" and isinstance(settings, Settings)
""".replace("from __future__ import annotations\n", "")

CASES = [
    Case(
        "code-02-tabs-spaces",
        files=file_of("exercise.py", RIGHT + "\n\ndef f(x):\n        if x:\n\treturn 1\n"),
        said=("[Tt]ab|indentation",),
    ),
    Case("code-03-python2", files=file_of("exercise.py", RIGHT + "\n\n" + PYTHON_2), said=("Python 2",)),
    Case(
        "code-04-newer-python",
        files=file_of("exercise.py", right(end=NEW_SYNTAX)),
        earned=NONE if sys.version_info < (3, 12) else ALL,
        withheld=ALL if sys.version_info < (3, 12) else NONE,
        said=(r"line \d+: Python 3\.12 .*a type statement",) if sys.version_info < (3, 12) else (),
    ),
    Case("code-05-bom", files=file_of("exercise.py", b"\xef\xbb\xbf" + RIGHT.encode()), earned=ALL),
    Case(
        "code-06-utf16-latin1",
        files=file_of("exercise.py", RIGHT.encode("utf-16")),
        earned=ALL,
        said=("UTF-16",),
    ),
    Case(
        "code-08-smart-quotes-nbsp",
        files=file_of("exercise.py", RIGHT.replace('reduction: str = "mean"', "reduction: str = “mean”")),
        said=("line [0-9]+", "quote|“"),
    ),
    Case(
        "own-space-that-does-not-break",
        files=file_of("exercise.py", right(end="def f(x):\n\u00a0   return x")),
        said=("line [0-9]+", "non-breaking|U\\+00A0"),
    ),
    Case(
        "code-12-missing-function",
        RIGHT.replace("cross_entropy(", "crossentropy("),
        but(3),
        said=("defines no 'cross_entropy'", "crossentropy"),
    ),
    Case(
        "own-functions-compiled",
        right(end="nothing = torch.compile(nn.Linear(2, 2), mode='max-autotune')(torch.ones(1, 2))")
        .replace("def newton_schulz(", "@torch.compile\ndef newton_schulz(")
        .replace("def cross_entropy(", "@torch.compile(fullgraph=True)\ndef cross_entropy("),
        ALL,
    ),
    Case(
        "own-signature-changed",
        right().replace(
            "def lr_wsd(\n    step: int, max_lr: float, min_lr: float,",
            "def lr_wsd(\n    step: int, rates: float,",
        ),
        but(6),
        said=("lr_wsd|signature",),
    ),
    Case(
        "code-14-main-guard",
        right(end="w = torch.ones(4, requires_grad=True)\nwhile True:\n    (w * w).sum().backward()"),
        NONE,
        said=("__main__",),
    ),
    Case(
        "code-16-hard-coded-path",
        right("data = open('C:\\\\Users\\\\me\\\\data.csv').read()"),
        NONE,
        withheld=ALL,
        failed=NONE,
        said=("your own computer|own folder|can't be opened",),
    ),
    Case(
        "code-17-device-cuda",
        right(bodies={"newton_schulz": "X = G.to('cuda')\nreturn (X @ X.T @ X).cpu()"}),
        but(5),
        said=("no GPU",),
    ),
    Case(
        "code-18-version-drift",
        right(bodies={"newton_schulz": "return torch.orthogonalise(G, steps=steps)"}),
        but(5),
        said=("has no attribute 'orthogonalise'",),
    ),
    Case(
        "code-19-flaky",
        right(
            bodies={
                "lr_wsd": """
                    import random
                    if step >= total_steps:
                        return float(min_lr)
                    return float(max_lr) if random.random() < 0.9 and torch.rand(()) < 0.9 else 0.0
                """
            }
        ),
        but(6),
        repeatable=True,
    ),
    Case("code-21-empty-file", files=file_of("exercise.py", b""), earned=NONE, said=("empty",)),
    Case(
        "code-22-debug-prints",
        right(
            "print('loaded', torch.__version__)",
            {
                "lr_wsd": """
                    print("step", step, max_lr, min_lr)
                    breakpoint()
                    if step >= total_steps:
                        return float(min_lr)
                    if step < warmup_steps:
                        return max_lr * (step + 1) / warmup_steps
                    decay_steps = int(decay_frac * total_steps)
                    decay_start = total_steps - decay_steps
                    if step < decay_start:
                        return float(max_lr)
                    return max_lr + (min_lr - max_lr) * (step - decay_start) / decay_steps
                """
            },
        ),
        ALL,
    ),
    Case(
        "code-23-global-state",
        right(
            bodies={
                "lr_cosine": "global rates\nrates = [max_lr]\nreturn 0.0",
                "lr_wsd": "return rates[0]",
            }
        ),
        but(6),
        said=("NameError",),
    ),
    Case(
        "code-24-cells-lost",
        files=notebook_of(
            "!pip install torch\n%matplotlib inline\n" + RIGHT[: RIGHT.index("class LayerNorm")],
            "# the cell with the tests was split\n",
            RIGHT[RIGHT.index("class LayerNorm") :],
            "",
        ),
        earned=ALL,
        said=("notebook",),
    ),
    Case("own-harmless-imports-and-names", right(HARMLESS), ALL),
    Case(
        "own-numbers-of-numpy",
        right(
            bodies={
                "lr_cosine": """
                    import numpy as np
                    if step >= total_steps:
                        return np.float64(min_lr)
                    if step < warmup_steps:
                        return np.float64(max_lr * (step + 1) / warmup_steps)
                    progress = (step - warmup_steps) / (total_steps - warmup_steps)
                    return min_lr + (max_lr - min_lr) * (1 + np.cos(np.pi * progress)) / 2
                """
            }
        ),
        ALL,
    ),
    Case(
        "own-experiment-behind-a-guard",
        right(end="if __name__ == '__main__':\n    import requests\n    print(open('results.csv').read())\n"),
        ALL,
    ),
    Case(
        "own-tests-in-the-file",
        right(
            end="""
            def test_mine():
                x = torch.randn(2, 3)
                assert torch.allclose(LayerNorm(3)(x), nn.functional.layer_norm(x, (3,)), atol=1e-5)
            """
        ),
        ALL,
    ),
    Case(
        "own-lines-that-fail-where-it-is-graded",
        right(
            "DEVICE = torch.zeros(1).cuda().device",
            end="""
            assert torch.allclose(LayerNorm(3)(torch.ones(3)), torch.ones(3)), "my own check"
            batches = [x for x in torch.utils.data.DataLoader([1.0, 2.0], num_workers=2)]
            for batch in batches:
                print(batch)
            print("the rest is run")
            """,
        ),
        ALL,
        said=("left out: exercise.py line \\d+: .*no GPU", "AssertionError: my own check", "num_workers=0"),
    ),
    Case(
        "own-class-that-fails-where-it-is-graded",
        right(end="class Mine(nn.Module):\n    weight = torch.zeros(3).cuda()"),
        NONE,
        said=("exercise.py line \\d+: .*", "no GPU"),
    ),
    Case(
        "own-warning-turned-on",
        right(
            "import warnings\nwarnings.simplefilter('error')\ntorch.set_printoptions(precision=2)\ntorch.manual_seed(0)"
        ),
        ALL,
    ),
    Case(
        "own-layer-for-a-try",
        right(end="model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())\nprint(model(torch.ones(1, 4)))"),
        ALL,
    ),
    Case(
        "own-figure-at-import",
        right("from matplotlib import pyplot as plt\nplt.plot([1, 2])\nplt.title('loss')\nplt.show()"),
        ALL,
    ),
    Case(
        "own-end-of-the-file-lost",
        RIGHT[: RIGHT.index("def clip_grad_norm_")],
        but(7),
        said=("clip_grad_norm_",),
    ),
    Case(
        "own-step-by-step",
        RIGHT[: RIGHT.index("class AdamW")] + "\n",
        frozenset({1, 2, 3}),
        said=("AdamW",),
    ),
]
