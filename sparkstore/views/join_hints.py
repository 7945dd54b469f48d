"""Which side of a join fits into memory: Spark cannot tell from the size of files.

A join that sends its small side to every task leaves the large one where it is; otherwise both are
sorted and moved. Spark decides that by file sizes, which say little about a few columns of
compressed files, so the views say it, from the row counts in Delta's logs.

Decision: the counts are those at the time when a view is registered. A view that is used for days
while what it joins grows a hundredfold needs more memory, and must be registered anew; it is never
wrong. Rejected: no hint (with 2 M entries both sides were sorted and moved), and a hint always
(a tail of tens of millions would not fit into a 2 GiB heap).
"""

from __future__ import annotations

import pyarrow.compute as pc

from sparkstore.recovery.point_in_time import PointInTime
from sparkstore.recovery.recovery import read_state
from sparkstore.tables.root import Root
from sparkstore.tables.snapshot import FileStats, snapshot

MOST_ROWS = 2_000_000
"""Rows that one side of a join may have to be sent to every task; each takes some 100 bytes."""


def hints(root: Root, point: PointInTime | None = None) -> dict[str, str]:
    """Values for the placeholders `touchedhint`, `entryhint` (a hint, or nothing) and `least`.

    `touched` is what the tail did to entries of the state, `entry` is all there are; `least` is P.
    Of a root as it stood, they are those of the version of `state` that it starts from.
    """
    if point is None:
        folded = folded_position(root)
        tail, files = _after(root, folded), snapshot(root.state)
    else:
        folded, tail = point.folded, point.position - point.folded
        files = [] if point.version is None else snapshot(root.state, point.version)
    return hints_for(files, folded, tail)


def hints_for(state: list[FileStats], folded: int, tail: int) -> dict[str, str]:
    """Values as of `hints`, from the files of a state, its P, and how many records follow it."""
    entries = sum(file.row_count for file in state if file.partition == "entry")
    return {
        "touchedhint": "/*+ BROADCAST(touched) */" if tail <= MOST_ROWS else "",
        "entryhint": "/*+ BROADCAST(entry) */" if entries + tail <= MOST_ROWS else "",
        "least": str(folded),
    }


def waiting_records(root: Root) -> int:
    """How many records Delta holds that no state has folded, from its logs."""
    return _after(root, folded_position(root))


def _after(root: Root, position: int) -> int:
    ends = (
        file.positions[1]
        for table in ("history", "journal")
        for file in snapshot(root.table(table))
    )
    return max(max(ends, default=0) - position, 0)


def folded_position(root: Root) -> int:
    """Read P, the position up to which `state` is folded."""
    position: int | None = pc.max(read_state(root, ["meta"])["position"]).as_py()
    return position or 0
