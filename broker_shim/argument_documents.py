"""Write the table of a queue's arguments in `docs/queues.md` from what is declared of them.

`python -m broker_shim.generate` does so, after a declaration changed.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

from sparkstore.core.queue_arguments import ARGUMENTS

PAGE = Path("docs/queues.md")
_NAME_WIDTH = max(map(len, ARGUMENTS)) + 2


def main() -> None:
    """Write the table of the page."""
    path = Path(__file__).parents[1] / PAGE
    path.write_text(page(path.read_text()))


def page(text: str) -> str:
    """Return the page of queues with the table of arguments as they are declared."""
    return between(text, "arguments", _table())


def between(text: str, name: str, lines: Iterator[str]) -> str:
    """Return a text with these lines between its two comments of a name."""
    begin, end = f"<!-- {name} begin -->", f"<!-- {name} end -->"
    table = "\n".join([begin, *lines, end])
    return re.sub(f"{begin}.*{end}", lambda _: table, text, flags=re.DOTALL)


def _table() -> Iterator[str]:
    yield "| argument | what it says | may be altered | since |"
    yield "| --- | --- | --- | --- |"
    for argument in ARGUMENTS.values():
        yield f"| `{argument.name}` | {argument.listed} | {argument.changes} | {argument.since} |"


def comment(width: int) -> Iterator[str]:
    """Yield the lines of a comment that lists all arguments, for the settings file."""
    for argument in ARGUMENTS.values():
        yield from textwrap.wrap(
            argument.listed,
            width,
            initial_indent=f"# {argument.name:{_NAME_WIDTH}}",
            subsequent_indent="# " + " " * _NAME_WIDTH,
            break_on_hyphens=False,
        )
