"""What a history is, and how the three tables may hold it at one moment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from sparkstore.core import fold
from sparkstore.core.link_records import LinkKey, link_text
from sparkstore.core.records import Record

QUEUE_NAMES = [
    "orders",
    "flights::late",
    "../../etc/passwd",
    "a'b\"c`d;--",
    "queue",
    "Queue",
    "Schlüssel 🦊",
    "nul\x00byte",
    "a" * 300,
    " ",
]
"""Names that may never become a path or SQL."""
EXCHANGE_NAMES = ["amq.topic", "e/../x", "fan out"]
HOLDERS = ["consumer-1", "member 'ü'/link ' 7", "🦊"]
LINKS = [
    link_text(LinkKey("client", "sub", "sender")),
    link_text(LinkKey("client", "sub", "receiver")),
    link_text(LinkKey('c","sub', "späť\x00'", "receiver")),
]
TAGS = [b"", b"\x00", bytes(range(32))]
MEMBERS = ["brokerj", "member 'ü'"]
EPOCH_MICROS = 1_750_000_000_000_000
"""UTC µs of position 0; the clock of a history runs backwards now and then."""
ID_BLOCK = 10


class Row(NamedTuple):
    """A record in its place."""

    position: int
    epoch: int
    record: Record


@dataclass(slots=True)
class History:
    """A whole history.

    Attributes:
        rows: Every record that counts, position 1, 2, 3, …
        ghosts: Rows of writers that were fenced: they lie in the journal and do not count.
    """

    rows: list[Row] = field(default_factory=list)
    ghosts: list[Row] = field(default_factory=list)

    @property
    def last_position(self) -> int:
        """Of the last record that counts."""
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class Layers:
    """What each table holds at one moment.

    Attributes:
        history: All that happened.
        state_position: P: the fold of rows up to here is in `state`; 0: `state` is empty.
        history_position: H ≥ P: rows up to here are in `history`.
        journal_start: ≤ P + 1: rows from here on are in `journal`; what is before was trimmed.
        segment_records: A segment closes after so many records.
    """

    history: History
    state_position: int
    history_position: int
    journal_start: int
    segment_records: int

    def segment(self, position: int) -> int:
        """Segment of a position."""
        return (position - 1) // self.segment_records

    @property
    def history_rows(self) -> list[Row]:
        """What `history` holds."""
        return self.history.rows[: self.history_position]

    @property
    def journal_rows(self) -> list[Row]:
        """What `journal` holds, in the order of positions, ghosts after those that count."""
        rows = self.history.rows[self.journal_start - 1 :]
        ghosts = [ghost for ghost in self.history.ghosts if ghost.position >= self.journal_start]
        return sorted([*rows, *ghosts], key=lambda row: row.position)


def fold_rows(rows: list[Row]) -> fold.State:
    """The oracle: the fold of rows that count."""
    state = fold.State()
    for position, epoch, record in rows:
        fold.apply(state, position, record, epoch)
    return state
