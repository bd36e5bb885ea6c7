"""Resources: time, memory, disk, output, open files; and what honest code asks for that isn't there."""

# ruff: noqa: E501 - the long lines stand inside texts that are handed in

from __future__ import annotations

from tests.attacks.case import ALL, NONE, Case, but, right, wrong

CASES = [
    Case(
        "res-02-infinite-import",
        right(end="while True:\n    pass"),
        NONE,
        said=("import",),
    ),
    Case(
        "res-03-slow-code",
        right(
            bodies={
                "lr_wsd": "for _ in range(10**9):\n    torch.ones(3)\nreturn 0.0",
            }
        ),
        but(6),
        said=(r"\d(\.\d+)? s",),
    ),
    Case(
        "res-05-disk-fill",
        wrong(
            """
            import os, tempfile

            block = b"x" * (8 << 20)


            def fill():
                written = 0
                for folder in (".", "/tmp", "/dev/shm", "/var/tmp", tempfile.gettempdir(), os.path.expanduser("~")):
                    for number in range(40):
                        try:
                            with open(os.path.join(folder, f"left-by-a-submission-{number}"), "wb") as file:
                                written += file.write(block)
                        except OSError:
                            break
                print("REACHED" if written > 512 << 20 else "wrote", written >> 20, "MiB")
                return 0.0
            """,
            {"lr_cosine": "return fill()"},
        ),
    ),
    Case(
        "res-06-inode-flood",
        wrong(
            """
            import os, tempfile


            def flood():
                for folder in ("/tmp", "/dev/shm", "/var/tmp", tempfile.gettempdir()):
                    for number in range(20000):
                        try:
                            os.close(os.open(f"{folder}/left-by-a-submission-{number}", os.O_CREAT | os.O_WRONLY))
                        except OSError:
                            break
                return 0.0
            """,
            {"lr_cosine": "return flood()"},
        ),
    ),
    Case(
        "res-07-output-flood",
        right(
            """
            import sys

            def flood():
                for _ in range(8):
                    print("y" * 1_000_000)
                    print("z" * 1_000_000, file=sys.stderr)
            """,
            {"newton_schulz": "flood()\nreturn G"},
        ),
        but(5),
    ),
    Case(
        "res-08-huge-result",
        right(
            "import itertools",
            {
                "newton_schulz": "return torch.ones((), dtype=G.dtype).expand(10 << 27)",
                "lr_wsd": "return itertools.count()",
                "lr_cosine": "return 1 << (1 << 24)",
                "clip_grad_norm_": "return torch.ones(1).expand(1 << 20, 1 << 20)",
            },
        ),
        but(5, 6, 7),
    ),
    Case(
        "res-09-fd-exhaustion",
        right(
            bodies={
                "lr_wsd": """
                    held = [open("/dev/null") for _ in range(200_000)]
                    return float(len(held))
                """
            }
        ),
        but(6),
    ),
    Case(
        "res-10-gpu-hog",
        right(
            """
            if torch.cuda.is_available():
                print("REACHED a GPU")
                held = torch.empty(1 << 34, dtype=torch.uint8, device="cuda")
            """
        ),
        ALL,
    ),
    Case(
        "res-13-download-at-import",
        right("weights = torch.hub.load_state_dict_from_url('https://192.0.2.1/weights.pt', progress=False)"),
        NONE,
        withheld=ALL,
        failed=NONE,
        said=("network|not allowed|can't be opened|nothing can be downloaded",),
    ),
    Case(
        "res-15-compile-cache",
        right(
            bodies={
                "newton_schulz": """
                    @torch.compile
                    def polynomial(X):
                        return X @ X.T @ X * coefficients[0]

                    return polynomial(G)
                """
            }
        ),
        but(5),
    ),
    Case(
        "own-memory-without-an-end",
        right(
            bodies={
                "lr_wsd": """
                    held = []
                    while True:
                        held.append(torch.empty(64 << 20))
                """
            }
        ),
        but(6),
        said=("memory",),
    ),
    Case(
        "own-sleep-in-every-function",
        right(
            bodies={
                "cross_entropy": "import time\ntime.sleep(600)",
                "lr_cosine": "import time\ntime.sleep(600)",
                "clip_grad_norm_": "import threading\nthreading.Event().wait()",
                "kaiming_normal_": "import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()",
            }
        ),
        None,
        said=("3 tests",),
    ),
    Case(
        "own-search-without-an-end",
        right(bodies={"lr_wsd": "import re\nre.match('(a+)+$', 'a' * 40 + 'b')\nreturn 0.0"}),
        but(6),
    ),
    Case(
        "own-number-without-an-end",
        right(bodies={"lr_wsd": "return 10 ** (10 ** 9)"}),
        but(6),
    ),
    Case("own-input-of-a-person", right("name = input('your name? ')"), ALL, said=("EOF|input|type",)),
    Case(
        "own-nested-beyond-reason",
        right(end="x = " + "-" * 60_000 + "1"),
        NONE,
    ),
    Case(
        "own-brackets-beyond-reason",
        right(end="x = " + "[" * 150 + "]" * 150),
        ALL,
    ),
    Case(
        "own-chain-beyond-reason",
        right(end="def f(a):\n    return a" + ".b" * 20_000),
        None,
    ),
    Case(
        "own-names-by-the-thousand",
        right(end="\n".join(f"name_{number} = {number}" for number in range(1_000))),
        ALL,
    ),
]
