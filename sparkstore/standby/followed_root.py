"""The root of a standby: where it ends, what it takes, and what is set aside of it.

Who has it holds `writer.lock`: one thread, and from `go_live` on a committer, which alone commits
to the journal then (ARCHITECTURE: Rule 2). A live group is synced in the own write-ahead log before
it is confirmed. It goes to Delta after the primary has said that both have it: so the tables of a
standby never hold a record that its primary may lack, and what a rewind lets go of is in the log
alone. That log is moved to `set-aside` unless the primary has the very record at its end.

Records that are brought up go to Delta straight, under the epoch that wrote them, as a start
replays them. A cut between any two steps leaves a standby that is behind.
"""

from __future__ import annotations

import logging
from collections import deque
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from sparkstore.config import StoreConfig
from sparkstore.core import codec
from sparkstore.errors import CorruptData, StoreError, Unavailable
from sparkstore.log.batcher import RecordGroup
from sparkstore.log.committer import Committer, CommitterEvents
from sparkstore.log.journal import Commit, Journal
from sparkstore.log.log_metrics import LogMetrics
from sparkstore.log.wal import NoRoom, Wal, plain_write, sync_write
from sparkstore.log.wal_format import LooseGroup, WalGroup, decode_group, seed
from sparkstore.log.wal_replay import read_wal, set_aside
from sparkstore.recovery.recovery import Tail, journal_tail
from sparkstore.replication.record_at import fingerprint, row_fingerprint
from sparkstore.shipping.frames import POSITION, PrimaryWelcome, StandbyHello
from sparkstore.storage.disk_room import DiskRoom, RoomLimits
from sparkstore.tables import rows
from sparkstore.tables.fencing import STANDBY, change_identity
from sparkstore.tables.healing import heal
from sparkstore.tables.marks import mark_durable
from sparkstore.tables.root import Root
from sparkstore.tables.schema import ROW

_log = logging.getLogger(__name__)

_SEGMENT_RECORDS = 1_000_000


class FollowedRoot:
    """A root that takes what a primary sends; `close` when the connection is gone."""

    def __init__(self, root: Root, config: StoreConfig) -> None:
        """Heal the root's journal and look where it ends; nothing else is changed.

        Raises:
            CorruptData: It cannot be trusted: move it away.
            StoreError: It cannot be read.
        """
        self.root, self._config = root, config
        self._root_id = bytes.fromhex(root.identity.root_id)
        self.wal_folder = Path(config.wal_dir).absolute() if config.wal_dir else root.path / "wal"
        heal(root, ["journal"])
        self._journal = Journal(root, uuid4().hex)
        self._tail = tail = journal_tail(root)
        self._segment, self._segment_records = tail.segment + 1, 0
        self._next = tail.last_position + 1
        self._last_group = self._read_log(tail)
        self._wal: Wal | None = None
        self._committer: Committer | None = None
        self._waiting: deque[LooseGroup] = deque()
        self._source_seed = self._turn = 0
        self.failure: StoreError | None = None

    @property
    def position(self) -> int:
        """Return the last position that it has."""
        return self._next - 1

    def hello(self, protocol: int, token: str) -> StandbyHello:
        """Make the greeting that says what it has."""
        identity, last = self.root.identity, self._last_group
        return StandbyHello(
            protocol,
            identity.schema_version,
            token,
            identity.root_id,
            identity.role,
            identity.generation,
            identity.primary_id,
            self.position,
            fingerprint(self.root, self.position),
            0 if last is None else last.last_position,
            "" if last is None else _digest_of_last(last, self._tail.epoch),
        )

    def follow(self, primary: PrimaryWelcome, where: str) -> None:
        """Become this primary's standby, and let go of what only the own log has."""
        own = self.root.identity
        superseded = {*own.superseded, *primary.superseded, own.primary_id} - {"", own.root_id}
        changes = {
            "role": STANDBY,
            "generation": primary.generation,
            "primary_id": primary.root_id,
            "primary": where,
            "witness": primary.witness,
            "superseded": sorted(superseded - {primary.root_id}),
        }
        self.root = Root(self.root.path, change_identity(self.root, lambda _: changes))
        if self._last_group is not None and not primary.has_log_end:
            _log.warning(
                "positions %d to %d of %s are not the primary's: set aside",
                self._next,
                self._last_group.last_position,
                self.root.path,
            )
            set_aside(sorted(self.wal_folder.glob("*.wal")))
        self._last_group = None

    def take_rows(self, content: bytes) -> int:
        """Commit records of the primary's journal; the last position then.

        Raises:
            CorruptData: They are damaged, or do not follow what is here.
            Unavailable: They could not be committed.
        """
        try:
            with pa.ipc.open_stream(content) as stream:
                table = stream.read_all()
            positions = table["position"].combine_chunks()
            epoch = pc.max(table["epoch"]).as_py()
        except (pa.ArrowException, KeyError, OSError) as reason:
            raise CorruptData(f"the primary sent no records: {reason}") from reason
        count, first = table.num_rows, self._next
        expected = pa.array(range(first, first + count), pa.int64())
        if not count or not positions.equals(expected) or epoch < self._journal.epoch:
            message = f"the primary sent other records than those after position {first - 1}"
            raise CorruptData(f"{message}, or of an epoch that is over")
        if epoch > self._journal.epoch:
            self._journal.begin_epoch(epoch)
        segment = pa.repeat(pa.scalar(self._segment, pa.int32()), count)
        as_rows = table.append_column("segment", segment).select(ROW.names).cast(ROW)
        self._journal.append(Commit(as_rows, first, first + count - 1, self._segment))
        self._next += count
        self._segment_records += count
        if self._segment_records >= _SEGMENT_RECORDS:
            self._segment, self._segment_records = self._segment + 1, 0
        return self.position

    def go_live(self, primary: PrimaryWelcome, epoch: int, first: int) -> int:
        """Take groups from now on: what is here is in Delta, and survives without a log.

        Raises:
            CorruptData: Something is missing before the first group, or it is of another epoch.
        """
        tail = journal_tail(self.root)
        if tail.last_position != first - 1 or tail.epoch != epoch:
            message = f"the primary goes on at position {first} of epoch {epoch}, and this standby"
            message += f" ends at {tail.last_position} of epoch {tail.epoch}: it is brought up anew"
            raise CorruptData(message)
        config = self._config
        mark_durable(self.root, {"journal": self._journal.version}, fsync=config.fsync)
        for file in self.wal_folder.glob("*.wal"):  # Delta has what is in them
            file.unlink()
        least = RoomLimits(0, 0.0, config.reserve_bytes)  # the primary's limits count
        self.wal_folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        room = DiskRoom([self.root.path, self.wal_folder], least)
        if self._journal.epoch != epoch:
            self._journal.begin_epoch(epoch)
        self._wal = Wal(
            self.wal_folder,
            self._root_id,
            epoch,
            file_bytes=config.wal_file_bytes,
            max_files=config.max_wal_files,
            write=sync_write if config.fsync else plain_write,
            has_room_for=room.has_room_for,
        )
        self._wal.prepare_spare()
        self._source_seed = seed(bytes.fromhex(primary.root_id), epoch)
        events = CommitterEvents(lambda _records: None, self._fail)
        self._committer = Committer(
            self.root, self._journal, self._wal, config, self._segment + 1, LogMetrics(), events,
            room,
        )  # fmt: skip
        return self.position

    def take_group(self, body: bytes) -> int:
        """Sync a group of the primary's log in the own one; the last position then.

        Raises:
            CorruptData: It is damaged, of another root or epoch, or does not come next.
            Unavailable: There is no room for it now.
            OSError: The disk failed: no more may be taken.
        """
        if self.failure is not None:
            raise self.failure
        group = decode_group(memoryview(body)[POSITION.size :], self._source_seed)
        if self._wal is None or group is None:
            raise CorruptData(
                "the primary sent a group that is damaged, or of another root or epoch"
            )
        if (group.first_position, group.turn) != (self._next, self._turn + 1):
            message = f"the primary sent position {group.first_position} after {self.position}"
            raise CorruptData(message)
        try:
            self._wal.append(group.payload, group.record_count, group.first_position)
        except NoRoom as reason:
            raise Unavailable(f"no room in the write-ahead log: {reason}") from reason
        self._turn += 1
        self._next += group.record_count
        self._waiting.append(group)
        return self.position

    def confirm(self, body: bytes) -> None:
        """Commit what the primary says is confirmed, before long."""
        confirmed = POSITION.unpack_from(body)[0]
        while self._waiting and self._waiting[0].last_position <= confirmed:
            assert self._committer is not None
            group = self._waiting.popleft()
            records = [*codec.unpack_all(group.payload)]
            if len(records) != group.record_count:
                raise CorruptData(f"the group at position {group.first_position} is no group")
            self._committer.add(RecordGroup(group.first_position, records, len(group.payload)))

    def close(self) -> None:
        """End: what is confirmed goes to Delta, the rest stays in the log."""
        if self._committer is not None:
            self._committer.stop()
        if self._wal is not None:
            self._wal.close()

    def _fail(self, reason: StoreError) -> None:
        self.failure = self.failure or reason

    def _read_log(self, tail: Tail) -> WalGroup | None:
        """Return the last group of the own log that Delta lacks."""
        replay = read_wal(
            self.wal_folder,
            self._root_id,
            epoch=tail.epoch,
            opened_at=tail.opened_position,
            last_position=tail.last_position,
        )
        set_aside(replay.stale)
        return replay.groups[-1] if replay.groups else None


def _digest_of_last(group: WalGroup, epoch: int) -> str:
    """Return the fingerprint that the last record of a group has in a journal."""
    *_, record = codec.unpack_all(group.payload)
    table = rows.to_table([record], first_position=group.last_position, epoch=epoch, segment=0)
    return row_fingerprint(table.to_pylist()[0])
