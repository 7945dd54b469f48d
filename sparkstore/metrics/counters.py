"""Counters that say what they count: dataclass fields with a text for whoever reads the metrics."""

from __future__ import annotations

from dataclasses import field, fields
from typing import Any, NamedTuple

_HELP = "help"


class Counter(NamedTuple):
    """A counter with its present value."""

    name: str
    help: str
    value: float


def counted(help_text: str, default: float = 0) -> Any:
    """A field of a dataclass that only rises; the text is a sentence of what it counts."""
    return field(default=default, metadata={_HELP: help_text})


def counters_of(counts: Any) -> list[Counter]:
    """The counters of a dataclass, in the order of its fields; other fields are passed over."""
    return [
        Counter(each.name, each.metadata[_HELP], getattr(counts, each.name))
        for each in fields(counts)
        if _HELP in each.metadata
    ]


def line_of(counts: Any) -> str:
    """All of them in one line of a log."""
    return " ".join(f"{each.name}={each.value}" for each in counters_of(counts))
