"""Pages a reader opens: links lead somewhere, and nothing generated is left empty."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from grader.advice import advice
from grader.bans import _sentence
from grader.course import find_root, load_course
from grader.implementations import BrokenImplementation, Program, left_out_line
from grader.reports.feedback import for_student
from grader.verdicts import ERROR, FORBIDDEN, Verdict

ROOT = find_root(Path(__file__).parent)
FOLDERS = ("labs", "curriculum", "examples")
PAGES = sorted([*ROOT.glob("*.md"), *(page for name in FOLDERS for page in (ROOT / name).rglob("*.md"))])
each_page = pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@each_page
def test_relative_links_lead_to_a_file_and_a_heading(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        linked = (page.parent / name).resolve() if name else page
        assert linked.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in anchors(linked), f"{page.name} links to {target}"


@each_page
def test_a_page_has_one_title_and_every_marker_is_closed(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)
    assert len(re.findall(r"^# ", prose, re.MULTILINE)) == 1
    assert prose.count("<!--m:") == prose.count("<!--/m-->")
    assert prose.count("<!-- generated:") == prose.count("<!-- /generated -->")
    assert "<!--m:" not in prose or not re.search(r"<!--m:[^>]+--><!--/m-->", prose), "an empty number"


def test_a_lab_shows_what_the_grader_says_in_its_own_words() -> None:
    page = (ROOT / "labs" / "02_training_core" / "README.md").read_text(encoding="utf-8")
    exercise = Path("exercise.py")
    with pytest.raises(BrokenImplementation) as broken:
        Program(b"\n" * 11 + b"x = = 1", exercise)
    lacks = "exercise.py defines no 'lr_wsd'; it has 'lr_wds'; the stub had it (step 6)"
    imports = advice(ModuleNotFoundError("No module named 'helpers'", name="helpers"))[0]
    for said in (
        "ForbiddenCall: " + _sentence("torch's native_layer_norm"),
        for_student(Verdict("t", FORBIDDEN, "")),
        left_out_line(exercise, ["line 90: AssertionError: …"]),
        f"exercise.py line 3: ModuleNotFoundError; {imports.strip().partition(':')[0]}",
        str(broken.value).replace("x = = 1", "…"),
        for_student(Verdict("t", ERROR, lacks)),
    ):
        assert said in page, said


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", ROOT / "curriculum" / "README.md"], ids=["course", "curriculum"]
)
def test_every_lab_can_be_found_from_the_first_pages(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for lab in load_course(ROOT).labs:
        assert f"labs/{lab.name}/README.md" in text
