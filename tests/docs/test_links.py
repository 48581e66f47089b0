"""Links of the Markdown files lead to files and headings, as a code host follows them: relative to the file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dsui.methods.registry import names
from tests.support.fences import ROOT

LINK = re.compile(r"!?\[[^]]*\]\(([^)\s]+)\)")
NOT_PROSE = re.compile(r"^```.*?^```$|^    .*?$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
PAGES = sorted(
    page
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md"))
    if "_build" not in page.parts
)


def anchors(page: Path) -> set[str]:
    headings = HEADING.findall(re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for link in LINK.findall(NOT_PROSE.sub("", page.read_text())):
        if link.startswith(("https://", "http://")):
            continue
        path, _, heading = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not heading or heading in anchors(target), link


def test_every_method_has_a_page_under_its_name() -> None:
    pages = {page.stem for page in (ROOT / "docs" / "methods").glob("*.md")}
    assert pages - {"index"} == set(names())
