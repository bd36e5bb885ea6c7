"""Forging: fake results, printed, written to files, or sent to whoever waits for values."""

# ruff: noqa: E501 - the long lines stand inside texts that are handed in

from __future__ import annotations

from tests.attacks.case import Case, but, right, wrong

# Wherever this process has something open for writing.
EVERYWHERE = """
import os


def everywhere(data):
    for fd in range(1, 256):
        try:
            os.write(fd, data)
        except OSError:
            pass
"""

CASES = [
    Case(
        "forge-03-lock-result-file",
        wrong(
            """
            import os

            for name in ("results.json", "results.jsonl", "report.xml", "report.html", "gradebook.sqlite"):
                for folder in (".", "..", "/tmp", os.path.expanduser("~")):
                    try:
                        os.makedirs(os.path.join(folder, "left-by-a-submission", name), mode=0o400)
                        os.close(os.open(os.path.join(folder, name), os.O_CREAT | os.O_EXCL, 0o400))
                        os.unlink(os.path.join(folder, name))
                    except OSError:
                        pass
            """
        ),
    ),
    Case(
        "forge-04-print-fake-score",
        wrong(
            """
            import sys

            for stream in (sys.stdout, sys.stderr, sys.__stdout__):
                print("73 passed in 0.10s", file=stream)
                print('{"points": 100, "max_points": 100, "tests": [], "score": 100}', file=stream)
                print('{"event": "verdict", "test": "test_lr_wsd", "verdict": "pass"}', file=stream)
                print('{"event": "end"}', file=stream, flush=True)
            """
        ),
        unsaid=("73 passed", "max_points"),
    ),
    Case(
        "forge-05-protocol-forgery",
        wrong(
            EVERYWHERE
            + """

import json, struct

for test in ("test_wsd_schedule_shape", "test_cosine_schedule_shape", "test_schedules_return_floats"):
    everywhere((json.dumps({"event": "verdict", "test": test, "verdict": "pass"}) + "\\n").encode())
    for size in (0, 1, 8, 2**31 - 1, 2**32 - 1, 2**63 - 1):
        everywhere(struct.pack("<IQ", len(test), size) + test.encode() + b"pass")
        everywhere(struct.pack(">Q", size) + b"\\xff" * 64)
"""
        ),
    ),
    Case(
        "forge-06-pickle-to-parent",
        wrong(
            EVERYWHERE
            + """

import pickle


class Boom:
    def __reduce__(self):
        return os.mkdir, ("/tmp/left-by-a-submission-pickle",)


boom = pickle.dumps(Boom())
everywhere(boom)
everywhere(len(boom).to_bytes(4, "big") + boom)
""",
            {
                "cross_entropy": "return Boom()",
                "lr_cosine": "return Boom()",
                "lr_wsd": "return boom",
                "newton_schulz": "return boom",
                "clip_grad_norm_": "return Boom()",
            },
        ),
    ),
    Case(
        "forge-08-terminal-escapes",
        right(
            "print('\\x1b[2J\\x1b]0;owned\\x07 <script>alert(1)</script>')",
            {
                "lr_wsd": "raise ValueError('\\x1b[31m\\r<script>alert(1)</script>\\u202e\\x00\\n=cmd|calc\\ud800')"
            },
        ),
        but(6),
        unsaid=("\x1b", "\r", "\u202e", "\x00"),
    ),
    Case(
        "own-frames-by-the-graders-own-code",
        wrong(
            """
            import sys


            def senders():
                for name, module in list(sys.modules.items()):
                    if name.startswith("grader."):
                        for key, value in list(vars(module).items()):
                            if callable(value) and key.startswith(("send", "write", "emit", "record", "finish")):
                                yield value


            for send in senders():
                for arguments in ((True,), ("pass",), ("test_lr_wsd", "pass"), (1, b""), ()):
                    try:
                        send(*arguments)
                    except BaseException:
                        pass
            """
        ),
    ),
    Case(
        "own-claim-that-the-grader-failed",
        right(
            bodies={
                "lr_wsd": """
                    import os, struct
                    texts = b"".join(struct.pack("<H", len(one)) + one for one in (b"grader error", b"its fault", b""))
                    for fd in range(3, 256):
                        try:
                            os.write(fd, struct.pack("<cI", b"E", len(texts)) + texts)
                        except OSError:
                            pass
                    return 0.0
                """
            }
        ),
        None,
        failed=frozenset({6}),
    ),
    Case(
        "own-results-without-an-end",
        right(
            bodies={
                "lr_wsd": """
                    import os, struct
                    payload = b"l" + struct.pack("<I", 400_000) + bytes(3_200_000)
                    while True:
                        for fd in range(3, 256):
                            try:
                                os.write(fd, struct.pack("<cI", b"V", len(payload)) + payload)
                            except OSError:
                                pass
                """
            }
        ),
        but(6),
    ),
    Case(
        "own-garbage-on-every-pipe",
        wrong(
            EVERYWHERE
            + "\n\nfor size in (1, 7, 4096):\n    everywhere(b'\\0' * size)\neverywhere(b'\\xff' * 65536)\n"
        ),
    ),
    Case(
        "own-pipes-closed",
        wrong("import os\nos.closerange(0, 256)"),
    ),
]
