"""The documents that a user reads, and what of them a test can run."""

from __future__ import annotations

import re
import textwrap

from tests.support.checkout import CHECKOUT

PAGES = sorted((CHECKOUT / "docs").glob("*.md"))
DOCUMENTS = [CHECKOUT / "README.md", *PAGES]
"""What a user reads, the first page first."""


def text_of(name: str) -> str:
    """The text of a document by its path from the top, such as `docs/links.md`."""
    return (CHECKOUT / name).read_text()


def section(text: str, heading: str) -> str:
    """What stands below a heading of the second level, up to the next one."""
    found = text.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    assert found, heading
    return found


def blocks(text: str, language: str = r"\w*") -> list[str]:
    """The code blocks in a language (in any, if none is given), those in lists included."""
    found = re.finditer(rf"^( *)```{language}\n(.*?)^\1```$", text, flags=re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(block[2]) for block in found]


def view_columns() -> dict[str, list[tuple[str, str]]]:
    """The columns of each view with Spark's names of their types, as docs/sql.md has them."""
    parts = re.split(r"^### `(\w+)`$", text_of("docs/sql.md"), flags=re.MULTILINE)[1:]
    cells = re.compile(r"^\| `(\w+)` \| (\S+) \|", re.MULTILINE)
    return {view: cells.findall(text) for view, text in zip(parts[::2], parts[1::2], strict=True)}


def prose(text: str) -> str:
    """The text without its code blocks."""
    return re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.MULTILINE | re.DOTALL)
