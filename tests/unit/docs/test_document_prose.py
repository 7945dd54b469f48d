"""The documents are read once: few long sentences, and a changelog of short lines for users."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.checkout import CHECKOUT
from tests.support.documents import PAGES, prose, text_of

LONG = 30
"""Words of a sentence beyond which it is a long one."""
TEXTS = [*PAGES, *(CHECKOUT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"))]


def paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs, list items and cells of tables of a page, each on one line."""
    lines: list[str] = []
    for line in [*prose(text).splitlines(), ""]:
        is_cell, is_item = line.startswith("|"), re.match(r"\s*([-*]|\d+\.) ", line)
        if lines and (is_cell or is_item or not line.strip() or line.startswith("#")):
            yield " ".join(lines)
            lines = []
        if is_cell:
            yield from (cell.strip() for cell in line.split("|"))
        elif line.strip() and not line.startswith("#"):
            lines.append(re.sub(r"^\s*([-*]|\d+\.) ", "", line).strip())


def sentences(text: str) -> list[str]:
    """Return the sentences of a page, without the addresses of its links."""
    without = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", each) for each in paragraphs(text))
    found = (re.split(r"(?<=[.!?]) (?=[A-Z`*(\[])", each) for each in without)
    return [each for several in found for each in several if len(each.split()) > 1]


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.name)
def test_few_sentences_of_a_page_are_long(page: Path) -> None:
    every = sentences(page.read_text())
    long = [each for each in every if len(each.split()) > LONG]
    assert len(long) <= 0.05 * len(every), "\n".join(long)


def test_an_entry_of_the_changelog_is_a_short_line_that_stands_once() -> None:
    entries = re.findall(r"^- (.*(?:\n  .*)*)", text_of("CHANGELOG.md"), re.MULTILINE)
    assert len(entries) > 200
    assert [each for each in entries if len(each.split()) > 20] == []
    assert sorted(set(entries)) == sorted(entries)


def test_a_release_of_the_changelog_has_each_heading_once() -> None:
    releases = re.split(r"^## ", text_of("CHANGELOG.md"), flags=re.MULTILINE)[1:]
    assert releases[0].startswith("[Unreleased]\n")
    for release in releases:
        headings = re.findall(r"^### (\w+)$", release, re.MULTILINE)
        assert headings == [name for name in ("Added", "Changed", "Fixed") if name in headings]
    dated = [re.match(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d\n", each) for each in releases[1:]]
    assert None not in dated
