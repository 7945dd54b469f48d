"""Decide the folds of a compaction from a few numbers. Pure: no Spark, no clock."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple


class PositionRange(NamedTuple):
    """Positions to move or to fold together: after `after`, up to and including `last`."""

    after: int
    last: int


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the size of one commit.

    Attributes:
        step_records: Records folded in one MERGE, up to an eighth more: bounds what it keeps in
            memory.
    """

    step_records: int = 1_000_000


@dataclass(frozen=True, slots=True)
class Upkeep:
    """Settings of what a compaction keeps: old history, and files that readers may still need.

    Attributes:
        history_days: Age at which a segment of history is rewritten with only what is still
            needed; None: never.
        reader_grace_s: How long files that a query may still read are kept.
    """

    history_days: float | None = 30.0
    reader_grace_s: float = 3600.0


def steps(state_last: int, history_last: int, limits: Limits) -> list[PositionRange]:
    """Cut everything after P = `state_last` into folds; empty if there is nothing.

    A small rest goes with the step before: a MERGE of its own takes seconds, however few it folds.
    """
    longest = limits.step_records + limits.step_records // 8
    ends = [state_last]
    while history_last - ends[-1] > longest:
        ends.append(ends[-1] + limits.step_records)
    if state_last < history_last:
        ends.append(history_last)
    return [PositionRange(after, last) for after, last in pairwise(ends)]


def target_condition(parts: Iterable[str], blocks: Iterable[int]) -> str:
    """Literal limits on what a MERGE reads of `state`: whole partitions are skipped by them.

    Args:
        parts: Parts that change, apart from entries.
        blocks: Blocks of entries that may be there and change.
    """
    names = ", ".join(f"'{part}'" for part in sorted(parts))
    numbers = ", ".join(str(block) for block in sorted(blocks))
    entries = f" OR t.part = 'entry' AND t.block IN ({numbers})" if numbers else ""
    return f"(t.part IN ({names}){entries})"
