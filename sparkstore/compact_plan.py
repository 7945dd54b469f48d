"""What a compaction should do: decided from a few numbers. Pure: no Spark, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

FILE_BYTES = 128 << 20
"""Size that a history file should have: large, and still read by more than one task."""
MAX_RANGES = 64
"""Literal id ranges in one MERGE; with more, planning costs what pruning saves."""


class Step(NamedTuple):
    """Positions to fold in one Delta commit: after `after`, up to and including `last`."""

    after: int
    last: int


class IdRange(NamedTuple):
    """Message ids from `first` to `last`, both included."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Limits:
    """How large one commit may get.

    Attributes:
        step_records: Records folded in one MERGE. What it inserts lies in files of its own, so
            this bounds the id range of a file of entries, and with that what a later fold has
            to rewrite: cost follows the ranges touched, not the backlog.
    """

    step_records: int = 1_000_000


def steps(state_last: int, history_last: int, limits: Limits) -> list[Step]:
    """How to fold everything after P = `state_last`; empty if nothing is."""
    ends = [*range(state_last + limits.step_records, history_last, limits.step_records)]
    if state_last < history_last:
        ends.append(history_last)
    return [Step(after, last) for after, last in pairwise([state_last, *ends])]


def file_count(size_bytes: int) -> int:
    """In how many files so many bytes should be."""
    return max(1, -(-size_bytes // FILE_BYTES))


def joined(ranges: Iterable[IdRange], limit: int = MAX_RANGES) -> list[IdRange]:
    """At most `limit` ranges that cover all of these, joined over the smallest gaps first."""
    found = sorted(ranges)
    gaps = sorted(
        (later.first - earlier.last for earlier, later in pairwise(found)),
        reverse=True,
    )
    # Invariant: only gaps wider than `widest` stay open, so at most limit - 1 do.
    widest = max([1, *gaps[limit - 1 : limit]])
    result: list[IdRange] = []
    for part in found:
        if result and part.first - result[-1].last <= widest:
            result[-1] = IdRange(result[-1].first, max(result[-1].last, part.last))
        else:
            result.append(part)
    return result


def target_condition(parts: Iterable[str], ranges: Sequence[IdRange]) -> str:
    """Literal limits on what a MERGE reads of `state`: whole files are skipped by them.

    Rows without a message id are wiring and always pass; the id of the meta row must be in
    `ranges` like any other.
    """
    names = ", ".join(f"'{part}'" for part in sorted(parts))
    between = "".join(f" OR t.message_id BETWEEN {part.first} AND {part.last}" for part in ranges)
    return f"t.part IN ({names}) AND (t.message_id IS NULL{between})"
