"""Find records that a store acknowledged and its tables lack, for readers of the tables alone.

A store that was killed leaves records in its write-ahead log that the next start replays into the
tables. Until then a reader of the tables shows less than was acknowledged, and must say so. Beside
a store that runs, nothing is told: it commits what its log has within its commit interval.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sparkstore.core import codec
from sparkstore.errors import StoreError, Unavailable
from sparkstore.log.wal_replay import read_wal
from sparkstore.recovery.recovery import journal_tail
from sparkstore.tables.lock import is_held
from sparkstore.tables.root import Root


@dataclass(frozen=True, slots=True)
class Unreplayed:
    """Records of a write-ahead log that are in no table.

    Attributes:
        wal: Folder of the log.
        first_position: Position of the first of them.
        last_position: Position of the last of them.
        successor: The root that took over, which has not got them; empty: a start replays them.
        has_runs: Some are in runs (`codec`), which releases before those refuse.
    """

    wal: Path
    first_position: int
    last_position: int
    successor: str = ""
    has_runs: bool = False

    @property
    def records(self) -> int:
        """Return the number of records that are not replayed."""
        return self.last_position - self.first_position + 1

    def __str__(self) -> str:
        """Describe the records for a person, and what to do about them."""
        sentence = (
            f"{self.records} acknowledged records (positions {self.first_position} to"
            f" {self.last_position}) are in the write-ahead log {self.wal} and not in the tables"
        )
        if self.successor:
            return f"{sentence}: {self.successor} took over without them, keep this root"
        return f"{sentence} yet: start the store (sparkstore serve), which replays them"


def unreplayed(root: Root) -> Unreplayed | None:
    """Return the records that no start has replayed; None if there are none, or the store runs.

    Nothing is changed.

    Raises:
        Unavailable: The log is not here.
        CorruptData: The tables or the log cannot be trusted: a start would say the same.
        OSError: The log cannot be read.
    """
    folder = Path(root.identity.wal_dir or root.path / "wal")
    if _is_served(root, folder):
        return None
    try:
        records = _unreplayed(root, folder)
    except (StoreError, OSError):
        if _is_served(root, folder):  # it began meanwhile, and writes over what was being read
            return None
        raise
    return None if records is None or _is_served(root, folder) else records


def _unreplayed(root: Root, folder: Path) -> Unreplayed | None:
    if not folder.is_dir():
        if not root.identity.wal_dir:
            return None  # as of a copy of what a bucket holds, which may lack files
        message = f"the write-ahead log of {root.path} is in {folder}, which is not here: what only"
        raise Unavailable(f"{message} it has is not shown")
    if not any(folder.glob("*.wal")):
        return None  # a store that ended left no file, so the tables need not be read
    tail = journal_tail(root)
    groups = read_wal(
        folder,
        bytes.fromhex(root.identity.root_id),
        epoch=tail.epoch,
        opened_at=tail.opened_position,
        last_position=tail.last_position,
    ).groups
    if not groups:
        return None
    ends = groups[0].first_position, groups[-1].last_position
    has_runs = any(codec.has_runs(group.payload) for group in groups)
    return Unreplayed(folder, *ends, root.identity.successor, has_runs)


def _is_served(root: Root, folder: Path) -> bool:
    """Tell whether a store has the root, or a shared root's log; also if nobody can tell."""
    locks = (root.path / "writer.lock", folder / "wal.lock")
    return any(is_held(lock) is not False for lock in locks)
