"""The rows of an answer, whichever engine was asked, as they can be printed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from sparkstore.cli.output import json_lines, table

WIDTH = 1_000
"""Characters of a cell: a table is as wide as its longest."""


class QueryResult(NamedTuple):
    """Rows of a query.

    Attributes:
        columns: Their names, each once: a second `depth` is `depth_2`.
        rows: A value for each column.
        is_cut: There are more rows than were asked for.
        types: The engine's type of each column.
    """

    columns: list[str]
    rows: list[dict[str, Any]]
    is_cut: bool
    types: list[str]


class PrintedAnswer(NamedTuple):
    """An answer as it is printed.

    Attributes:
        lines: A table, or a JSON object for each row.
        is_cut: There are more rows than were asked for.
    """

    lines: Iterable[str]
    is_cut: bool


def printed(found: QueryResult, *, as_json: bool) -> PrintedAnswer:
    """Print the rows of a query."""
    rows = found.rows
    lines = json_lines(rows) if as_json else table(rows, found.columns, width=WIDTH)
    return PrintedAnswer(lines, found.is_cut)


def distinct(names: list[str]) -> list[str]:
    """Make names distinct: the second `a` becomes `a_2`, or what is free."""
    found: list[str] = []
    for name in names:
        number, free = 1, name
        while free in found or (number > 1 and free in names):
            number += 1
            free = f"{name}_{number}"
        found.append(free)
    return found
