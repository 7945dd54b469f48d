"""Counters that say what they count: dataclass fields with a text for whoever reads the metrics."""

from __future__ import annotations

from dataclasses import field, fields
from typing import Any, NamedTuple

_HELP = "help"


class Counter(NamedTuple):
    """A counter with its present value.

    Attributes:
        name: The name of its field.
        help: A sentence that says what it counts.
        value: Its value now.
        metric: The name that it is shown by.
        reason: Its label `reason`; empty: it has none.
    """

    name: str
    help: str
    value: float
    metric: str
    reason: str


def counted(help_text: str, default: float = 0, *, metric: str = "", reason: str = "") -> Any:
    """A field of a dataclass that only rises.

    Args:
        help_text: A sentence that says what it counts.
        default: What it begins with.
        metric: What it is shown as, if not by its own name: one metric for several reasons.
        reason: Which of them this is, for the label `reason`.
    """
    return field(default=default, metadata={_HELP: (help_text, metric, reason)})


def counters_of(counts: Any) -> list[Counter]:
    """The counters of a dataclass, in the order of its fields; other fields are passed over."""
    return [
        Counter(field.name, help_text, getattr(counts, field.name), metric or field.name, reason)
        for field in fields(counts)
        if _HELP in field.metadata
        for help_text, metric, reason in (field.metadata[_HELP],)
    ]


def line_of(counts: Any) -> str:
    """Write all counters in one line of a log."""
    return " ".join(f"{counter.name}={counter.value}" for counter in counters_of(counts))
