"""Pages a reader opens: links lead somewhere, and nothing generated is left empty."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from grader.course import find_root

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
