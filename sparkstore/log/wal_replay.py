"""Read the write-ahead log at a start: groups to replay, or the reason why the start must stop.

Only groups of the newest epoch that Delta knows are replayed, and only those after the last
position that Delta holds. Files of older epochs were replayed by the start that ended their epoch;
if one holds positions that no such start can have seen, it is set aside and listed.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow as pa

from sparkstore.core import codec
from sparkstore.core.records import Kind, Record
from sparkstore.errors import CorruptData
from sparkstore.log.wal_format import (
    BLOCK_BYTES,
    WalFileReader,
    WalGroup,
    check_is_ours,
    group_bytes,
)
from sparkstore.storage.durable_files import fsync_path, fsync_with_folders
from sparkstore.tables import rows

_log = logging.getLogger(__name__)

SET_ASIDE = "set-aside"
_NO_MESSAGE = 0
"""No message has this id: content for it is never enqueued."""
_UNFIT = (pa.ArrowException, TypeError, ValueError, OverflowError)


@dataclass(slots=True)
class Replay:
    """The parts of a write-ahead log that a start acts on.

    Attributes:
        groups: To commit to Delta, in order, without gap from the last position that Delta holds.
        stale: Files of an older epoch with positions that were never replayed.
        end: The last position in a file of this epoch, 0 if they have none; None if no file may be
            of it, as after a store that ended well.
        torn: File and byte of a group that was never acknowledged; None if there is none.
    """

    groups: list[WalGroup] = field(default_factory=list)
    stale: list[Path] = field(default_factory=list)
    end: int | None = None
    torn: tuple[Path, int] | None = None


def read_wal(
    folder: Path, root_id: bytes, *, epoch: int, opened_at: int, last_position: int
) -> Replay:
    """Read all files of a log folder.

    Args:
        folder: Where `*.wal` files are; it may be absent.
        root_id: Id of the root that the files must belong to.
        epoch: Epoch of the newest `opened` in Delta.
        opened_at: Position of that `opened`.
        last_position: The last that Delta holds.

    Raises:
        CorruptData: A file of another root or of a later epoch; a group that was synced is
            damaged (file and offset named).
    """
    readers = [WalFileReader(path, root_id, epoch) for path in sorted(folder.glob("*.wal"))]
    try:
        for reader in readers:
            check_is_ours(reader, root_id, epoch)
        stale = [
            reader.path
            for reader in readers
            if reader.header
            and reader.header.epoch < epoch
            and _last_position(reader.path, root_id, reader.header.epoch) >= opened_at
        ]
        current = [r for r in readers if r.header is None or r.header.epoch == epoch]
        in_files = [group for reader in current for group in reader.groups()]
        in_files.sort(key=lambda group: group.first_position)
        end = max((group.last_position for group in in_files), default=0) if current else None
        groups = _replayable(in_files, last_position)
        return Replay(groups, stale, end, _torn_tail(current, in_files[-1] if in_files else None))
    finally:
        for reader in readers:
            reader.close()


def set_aside(stale: list[Path]) -> None:
    """Move files out of the way, and say so; never delete."""
    for path in stale:
        target = path.parent / SET_ASIDE
        target.mkdir(mode=0o700, exist_ok=True)
        number = len([*target.iterdir()])
        path.rename(target / f"{number:04d}-{path.name}")
        fsync_path(target)
        fsync_path(path.parent)
        _log.warning(
            "%s holds positions that were never replayed, and cannot be: set aside in %s",
            path,
            target,
        )


class UnfitRecords:
    """Records that are in a log as they were written, and that no table can take.

    Older versions acknowledged a value of a wrong type, such as a number for a text; the log takes
    any, a column does not. One such record must not keep all others out of reach: its packed bytes
    go to `<root>/set-aside/records`, a line says which it was, and a record that changes nothing
    has its position. What cannot be without it goes with it: later entries of a message whose
    content it brought. The rest of its transaction counts.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._pack = codec.packer()
        self._lost_messages: set[int] = set()

    def table(
        self, records: list[Record], first_position: int, *, epoch: int, segment: int
    ) -> pa.Table:
        """Return the records' rows, those of unfit ones replaced.

        Args:
            records: Consecutive ones, after those of the call before.
            first_position: Position of the first record.
            epoch: The writer epoch that all rows get.
            segment: The segment of the journal that all rows get.

        Raises:
            OSError: What is unfit cannot be kept.
        """
        as_table = partial(
            rows.to_table, first_position=first_position, epoch=epoch, segment=segment
        )
        if not self._lost_messages:
            with suppress(*_UNFIT):
                return as_table(records)
        return as_table([self._fit(record, first_position + i) for i, record in enumerate(records)])

    def _fit(self, record: Record, position: int) -> Record:
        reason = _misfit(record)
        if record.kind is Kind.ENQUEUED and record.message_id in self._lost_messages:
            reason = reason or f"the content of message {record.message_id} was set aside"
        if reason is None:
            return record
        if _brings_content(record):
            self._lost_messages.add(record.message_id or 0)
        self._keep(record, position, reason)
        nothing = Record(Kind.CONTENT, 0, message_id=_NO_MESSAGE, body=b"", body_offset=0)
        decided = nothing._replace(member=record.member, request=record.request)
        return decided if _misfit(decided) is None else nothing

    def _keep(self, record: Record, position: int, reason: str) -> None:
        folder = self._root / SET_ASIDE / "records"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / f"{position:020}.msgpack"
        path.write_bytes(self._pack(record))
        fsync_with_folders([path], up_to=self._root)
        _log.error(
            "position %d (%s) is set aside in %s: %s", position, record.kind.column, path, reason
        )


def _misfit(record: Record) -> str | None:
    """Return the reason why a record cannot be a row of a table; None if it can."""
    try:
        rows.to_table([record], first_position=1, epoch=1, segment=0)
    except _UNFIT as reason:
        return (str(reason).splitlines() or [type(reason).__name__])[0]
    return None


def _brings_content(record: Record) -> bool:
    is_first = record.message is not None and record.message.protocol is not None
    return record.kind is Kind.CONTENT or (record.kind is Kind.ENQUEUED and is_first)


def _last_position(path: Path, root_id: bytes, epoch: int) -> int:
    reader = WalFileReader(path, root_id, epoch)
    try:
        return max((group.last_position for group in reader.groups()), default=0)
    finally:
        reader.close()


def _replayable(in_files: list[WalGroup], last_position: int) -> list[WalGroup]:
    """Return the groups after a position, without a gap; `in_files` is in the order of positions.

    Raises:
        CorruptData: There is a gap: something that was synced is gone, as a group is written only
            after the one before it was synced.
    """
    before: WalGroup | None = None
    replay: list[WalGroup] = []
    for group in in_files:
        if group.first_position > last_position + 1:
            raise _gap(before, group, last_position + 1)
        if group.first_position <= last_position < group.last_position:
            raise _half(group, last_position)
        if group.last_position > last_position:
            replay.append(group)
            last_position = group.last_position
        before = group
    return replay


def _gap(before: WalGroup | None, later: WalGroup, missing: int) -> CorruptData:
    is_first_of_its_file = later.offset == BLOCK_BYTES
    if before is not None and (is_first_of_its_file or before.path == later.path):
        broken, offset = before.path, _end(before)
    else:
        broken, offset = later.path, BLOCK_BYTES
    return CorruptData(
        f"{broken} is damaged at byte {offset}: position {missing} is unreadable, but position"
        f" {later.first_position} was written after it ({later.path.name}, byte {later.offset});"
        " restore the root from a replica or a backup"
    )


def _half(group: WalGroup, last_position: int) -> CorruptData:
    """Return the error of a group of which Delta has half: such a log is not this journal's."""
    return CorruptData(
        f"{group.path}, byte {group.offset}, holds positions {group.first_position} to"
        f" {group.last_position} as one group, but Delta ends at {last_position}, inside it:"
        " restore the root from a replica or a backup"
    )


def _torn_tail(readers: list[WalFileReader], last: WalGroup | None) -> tuple[Path, int] | None:
    newest = max(
        readers, key=lambda reader: reader.header.turn if reader.header else 0, default=None
    )
    if newest is None:
        return None
    offset = _end(last) if last and last.path == newest.path else BLOCK_BYTES
    return (newest.path, offset) if newest.looks_torn(offset) else None


def _end(group: WalGroup) -> int:
    return group.offset + group_bytes(len(group.payload))
