"""Files beside the exercise, archives and names: what comes with a hand-in, and in what it comes."""

from __future__ import annotations

import tarfile

from tests.attacks.case import ALL, RIGHT, Case, wrong
from tests.attacks.handing_in import file_of, folder_of, link_to, notebook_of, pipe, tarred, zipped

WRONG = wrong()
# Runs if anybody imports, installs or configures with the file that it lies in.
TRAP = "import os, sys\nprint('REACHED', __file__)\nopen('/tmp/left-by-a-submission-trap', 'w').close()\n"
PASSING = "def test_lr_wsd():\n    pass\n"

CASES = [
    Case(
        "ship-03-own-test-file",
        files=folder_of(
            {
                "exercise.py": WRONG,
                "test_exercise.py": PASSING,
                "test_training_core.py": PASSING,
                "conftest.py": TRAP,
                "pytest.ini": "[pytest]\naddopts = --collect-only\n",
            }
        ),
    ),
    Case(
        "ship-04-sitecustomize",
        files=folder_of({"exercise.py": WRONG, "sitecustomize.py": TRAP, "usercustomize.py": TRAP}),
    ),
    Case(
        "ship-05-pth-file",
        wrong(
            """
            import os, site, sys

            places = {*site.getsitepackages(), site.getusersitepackages(), *sys.path}
            for folder in filter(os.path.isabs, places):
                try:
                    os.makedirs(folder, exist_ok=True)
                    with open(os.path.join(folder, "left-by-a-submission.pth"), "w") as file:
                        file.write("import os")
                    print("REACHED", folder)
                except OSError:
                    pass
            """
        ),
    ),
    Case(
        "ship-06-shadow-torch",
        files=folder_of(
            {"exercise.py": RIGHT, "torch.py": TRAP, "random.py": TRAP, "typing.py": TRAP, "pytest.py": TRAP}
        ),
        earned=ALL,
    ),
    Case(
        "ship-07-init-package",
        files=folder_of({"exercise.py": RIGHT, "__init__.py": TRAP, "exercise/__init__.py": TRAP}),
        earned=ALL,
    ),
    Case(
        "ship-09-setup-requirements",
        files=folder_of(
            {"exercise.py": RIGHT, "setup.py": TRAP, "requirements.txt": "./trap\n", "trap/setup.py": TRAP}
        ),
        earned=ALL,
    ),
    Case(
        "ship-10-workflow-edit",
        files=folder_of(
            {
                "exercise.py": WRONG,
                ".github/workflows/classroom.yml": "on: push\njobs: {}\n",
                ".github/classroom/autograding.json": '{"tests": []}',
                "lab.toml": 'title = "Mine"\n',
                "course.toml": "[late]\ngrace_minutes = 99999\n",
            }
        ),
    ),
    Case(
        "ship-11-git-hooks-config",
        files=folder_of(
            {
                "exercise.py": RIGHT,
                ".git/HEAD": "ref: refs/heads/main\n",
                ".git/config": "[core]\n\tfsmonitor = touch /tmp/left-by-a-submission-git\n\thooksPath = .\n",
                ".git/objects/x": "",
                ".git/refs/x": "",
                ".gitattributes": "* filter=trap\n",
            }
        ),
        earned=ALL,
    ),
    Case(
        "zip-02-symlink",
        files=file_of("hand-in.zip", zipped({}, {"exercise.py": "/etc/passwd"})),
        said=("link",),
    ),
    Case("own-link-in-the-folder", files=link_to("/etc/passwd"), said=("link",)),
    Case(
        "own-link-in-a-tar",
        files=file_of("hand-in.tar.gz", tarred(("exercise.py", tarfile.SYMTYPE, b"", "/etc/passwd"))),
        said=("link|tar",),
    ),
    Case(
        "zip-03-hardlink-fifo-device",
        files=file_of(
            "hand-in.tar.gz",
            tarred(
                ("exercise.py", tarfile.FIFOTYPE, b"", ""),
                ("02_training_core/exercise.py", tarfile.LNKTYPE, b"", "/etc/shadow"),
                ("device.py", tarfile.CHRTYPE, b"", ""),
            ),
        ),
        said=(".",),
    ),
    Case("own-pipe-in-the-folder", files=pipe, said=("not a file",)),
    Case(
        "zip-04-zip-bomb",
        files=file_of("hand-in.zip", zipped({"exercise.py": b"#" * (200 << 20)})),
        said=("more than|larger",),
    ),
    Case(
        "zip-07-mac-resource-forks",
        files=file_of(
            "hand-in.zip",
            zipped(
                {"exercise.py": RIGHT, "__MACOSX/._exercise.py": b"\0\5\x16\7", ".DS_Store": b"\0\0\0\1Bud1"}
            ),
        ),
        earned=ALL,
    ),
    Case("zip-08-nested-folder", files=file_of("hw1_final/hw1/src/exercise.py", RIGHT), earned=ALL),
    Case(
        "zip-09-zip-in-zip",
        files=file_of("export.zip", zipped({"hand-in.zip": zipped({"exercise.py": RIGHT})})),
        earned=ALL,
    ),
    Case(
        "name-02-txt-docx-pdf",
        files=file_of("exercise.docx", b"PK\x03\x04 an office document"),
        said=("Python",),
    ),
    Case(
        "name-03-ipynb-instead",
        files=notebook_of("%pip install torch", RIGHT),
        earned=ALL,
        said=("notebook",),
    ),
    Case(
        "name-07-windows-paths",
        files=file_of("hand-in.zip", zipped({"Lab 2\\src\\exercise.py": RIGHT})),
        earned=ALL,
    ),
    Case(
        "name-08-case-insensitive-fs",
        files=file_of("hand-in.zip", zipped({"exercise.py": RIGHT, "Exercise.PY": WRONG})),
        earned=None,
        said=("Exercise",),
    ),
]
