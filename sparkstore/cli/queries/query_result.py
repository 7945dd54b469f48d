"""The rows of an answer, whichever engine was asked."""

from __future__ import annotations

from typing import Any, NamedTuple


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


def distinct(names: list[str]) -> list[str]:
    """Make names distinct: the second `a` becomes `a_2`, or what is free."""
    unique: list[str] = []
    for name in names:
        number, free = 1, name
        while free in unique or (number > 1 and free in names):
            number += 1
            free = f"{name}_{number}"
        unique.append(free)
    return unique
