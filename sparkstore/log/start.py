"""Start a log: lock; heal; replay under the old epoch; open the new one.

Why a cut between any two steps is harmless: replayed groups are committed under the epoch that
wrote them, so the next start finds them in Delta and replays what is left. The new epoch begins
with its `opened` record, which is made durable before the first group of that epoch is written.
`root.json` says where the newest write-ahead log is, from before its first group on: so a start
with other settings replays the log that there is, and not the one that it will write.

A root in a bucket is opened by the same steps, on its working copy (`sparkstore.bucket`). Instead
of healing, the copy is brought to what the bucket holds; to make a commit durable is to publish it;
and the epoch is claimed in the bucket first. What was not published of a copy never was.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from uuid import uuid4

from deltalake.exceptions import DeltaError

from sparkstore.bucket.bucket_start import BucketStart
from sparkstore.config import StoreConfig
from sparkstore.core import codec
from sparkstore.core.fold import State
from sparkstore.core.records import Record, ids_reserved, opened
from sparkstore.errors import Fenced, InvalidRequest, Locked, Unavailable
from sparkstore.log.guards import LogGuards
from sparkstore.log.journal import Commit, Journal
from sparkstore.log.wal import Wal, plain_write, sync_write
from sparkstore.log.wal_format import WalGroup, group_encoder
from sparkstore.log.wal_replay import Replay, UnfitRecords, read_wal, set_aside
from sparkstore.log.writer import Log
from sparkstore.recovery.recovery import Tail, journal_tail, recover
from sparkstore.shipping.log_shipping import shipping_of
from sparkstore.storage.disk_room import DiskRoom, RoomLimits, make_room
from sparkstore.storage.objects import ObjectStorage, is_object_uri
from sparkstore.tables import rows
from sparkstore.tables.fencing import FenceWatch, change_identity, check_may_serve
from sparkstore.tables.healing import heal
from sparkstore.tables.lease import jobs_lease
from sparkstore.tables.lock import FileLock
from sparkstore.tables.marks import mark_durable
from sparkstore.tables.private_folder import private_folder
from sparkstore.tables.root import (
    Identity,
    Root,
    check_may_be_root,
    is_root,
    open_or_create_root,
    open_root,
    path_of,
)
from sparkstore.witness.claim import claimed
from sparkstore.witness.lease import Witness
from sparkstore.witness.place import NO_WITNESS

_log = logging.getLogger(__name__)

_REPLAY_BYTES = 32 << 20
_IDS_SKIPPED = 1 << 36
"""Message ids that a write-ahead log that is given up may have reserved: members of the store's
service have them still, and use them. 8 days of 100,000 new messages a second."""


@dataclass(frozen=True, slots=True)
class OpenedLog:
    """An open log, and the fold of all that was in it."""

    log: Log
    state: State


def open_log(where: str | Path, config: StoreConfig, *, accept_loss: bool = False) -> OpenedLog:
    """Open the root at a folder or URI for writing; create it if nothing is there.

    A URI is a shared root: no flock holds off a second opener on another machine, the epoch does.

    Args:
        where: The folder, or the URI.
        config: Settings of the store.
        accept_loss: Go on in a root or bucket that was put back, without what it lacks.

    Raises:
        Locked: Another process writes to it, or to its log folder.
        Unavailable: The disk is full or does not answer.
        Fenced: It is a replica, or a replica of it took over; another opener won the race for the
            next epoch.
        InvalidRequest: Not a root, or `ack` does not fit it.
        CorruptData: What is there cannot be trusted; the message says what and where.
    """
    ack = _ack(where, config)
    if is_object_uri(where):
        return _open_in_bucket(str(where), config, ack, accept_loss=accept_loss)
    path = path_of(where)
    check_may_be_root(path)  # before anything is written there
    if is_root(path):
        check_may_serve(path)
    private_folder(path)
    wal_folder = Path(config.wal_dir).absolute() if config.wal_dir else path / "wal"
    make_room(path, wal_folder)
    locks = ExitStack()
    try:
        if not _is_remote(where):
            _hold(locks, path / "writer.lock", path)
        if config.wal_dir and ack == "wal":
            # Two writers of one log folder would write over each other's groups.
            private_folder(wal_folder)
            _hold(locks, wal_folder / "wal.lock", wal_folder)
        if is_root(path):
            check_may_serve(path)  # again, since a promotion holds the writer's lock, too
        identity = open_root(path).identity if is_root(path) else Identity(uuid4().hex)
        witness = claimed(path, identity, config, locks, accept_loss=accept_loss)
        named = "" if witness is None else config.witness
        root = open_or_create_root(path, replace(identity, witness=named))
        _heal(root)
        journal = Journal(root, uuid4().hex)
        folders = _wal_folders(root, wal_folder)
        return _open(root, journal, config, folders, wal_folder, locks, ack, witness)
    except BaseException as reason:
        locks.close()
        if isinstance(reason, OSError | DeltaError):
            message = f"{path} cannot be opened: {reason}"
            raise Unavailable(message) from reason
        raise


def _open_in_bucket(uri: str, config: StoreConfig, ack: str, *, accept_loss: bool) -> OpenedLog:
    wal_folder = Path(config.wal_dir).absolute()
    locks = ExitStack()
    try:
        if ack == "wal":
            private_folder(wal_folder)
            _hold(locks, wal_folder / "wal.lock", wal_folder)
        bucket, own = ObjectStorage(uri), wal_folder if ack == "wal" else None
        start = BucketStart(bucket, config, locks, own, accept_loss=accept_loss)
        if start.accepted_loss:  # its records come after what the bucket lacks
            set_aside([*wal_folder.glob("*.wal")] if own is not None else [])
        for copy in start.rounds():
            journal = Journal(copy.root, uuid4().hex, copy.publisher)
            try:
                folders = copy.wal_folders
                return _open(copy.root, journal, config, folders, wal_folder, locks, ack)
            except Fenced as reason:
                _log.info("%s; looking again", reason)
        message = f"{uri} was not opened"  # the rounds end by an error
        raise Unavailable(message)  # noqa: TRY301
    except BaseException as reason:
        locks.close()
        if isinstance(reason, OSError | DeltaError):
            message = f"{uri} cannot be opened: {reason}"
            raise Unavailable(message) from reason
        raise


def _hold(locks: ExitStack, file: Path, holder: Path) -> None:
    locks.callback(FileLock(file, str(holder)).release)


def _is_remote(where: str | Path) -> bool:
    return "://" in str(where)


def _ack(where: str | Path, config: StoreConfig) -> str:
    if _is_remote(where) and config.witness not in {"", NO_WITNESS}:
        raise InvalidRequest("a root in a bucket is its own witness: leave witness out")
    if not _is_remote(where):
        if config.ack == "delta":
            raise InvalidRequest("ack = delta adds nothing to a local root: leave it out")
        return "wal"
    if config.ack == "wal":
        if not config.wal_dir:
            raise InvalidRequest("ack = wal on a remote root needs wal_dir, a local folder")
        _log.warning(
            "ack = wal on a remote root: losing the disk of %s loses what was acknowledged in the"
            " last %d ms or more",
            config.wal_dir,
            config.commit_interval_ms,
        )
    return config.ack or "delta"


def _open(
    root: Root,
    journal: Journal,
    config: StoreConfig,
    old_wal_folders: list[Path],
    wal_folder: Path,
    locks: ExitStack,
    ack: str,
    witness: Witness | None = None,
) -> OpenedLog:
    tail = journal_tail(root)
    last_position = _replay_all(root, journal, tail, old_wal_folders, ack, witness)
    publisher = journal.publisher
    _make_durable(root, journal, config)  # no start of a later epoch replays this log again
    journal.begin_epoch(tail.epoch + 1 if publisher is None else publisher.claim.epoch)
    first = _first_records(root, journal)
    # A segment of its own, so that what the replay wrote can close.
    segment = tail.segment + 2
    journal.append(_commit(first, last_position + 1, journal.epoch, segment))
    _make_durable(root, journal, config)  # before the first group of this epoch is written
    if ack == "wal" and publisher is None:
        root = _with_wal_folder(root, wal_folder)
    room = _room(root, wal_folder if ack == "wal" else root.path, config)
    wal = _new_wal(root, wal_folder, journal.epoch, config, room) if ack == "wal" else None
    state = _recovered(root, wal)
    ends = {"next_position": last_position + 1 + len(first), "first_segment": segment}
    encode = group_encoder(bytes.fromhex(root.identity.root_id), journal.epoch)
    guards = LogGuards(room, witness, shipping_of(config, encode, ends["next_position"], witness))
    log = Log(root, journal, wal, locks, config, **ends, guards=guards)
    if witness is not None:
        witness.serve(log.fail, lambda: log.synced_position)
    if publisher is not None:
        publisher.jobs.start()
    locks.callback(FenceWatch(_fence_check(root, journal), config.fence_check_s, log.fail).stop)
    where = root.path if publisher is None else publisher.location
    _log.info(
        "opened %s: epoch %d, position %d, %d records replayed",
        *(where, journal.epoch, last_position + 1, last_position - tail.last_position),
    )
    return OpenedLog(log, state)


def _recovered(root: Root, wal: Wal | None) -> State:
    """Recover the root, while the write-ahead log gets its first file: a tenth of a second.

    Nothing else knows the log yet, and its file stays without a header, so there is no order to
    keep between the two. Both have ended when this returns or raises.
    """
    with ThreadPoolExecutor(1, "first log file") as beside:
        spare = beside.submit(wal.prepare_spare) if wal is not None else None
        state = recover(root).state
        if spare is not None:
            spare.result()
    return state


def _first_records(root: Root, journal: Journal) -> list[Record]:
    """Return the records that begin an epoch.

    After a discarded log, ids skip far beyond its own.
    """
    now_us, publisher = time.time_ns() // 1000, journal.publisher
    records = [opened(now_us, journal.writer)]
    if publisher is not None and publisher.lacks_log:
        records.append(ids_reserved(now_us, recover(root).state.next_message_id + _IDS_SKIPPED))
    return records


def _fence_check(root: Root, journal: Journal) -> Callable[[], None]:
    if journal.publisher is not None:
        return journal.publisher.check_is_alone
    return partial(check_may_serve, root.path)


def _make_durable(root: Root, journal: Journal, config: StoreConfig) -> None:
    """Make all commits so far survive: of a copy, by publishing them.

    Raises:
        Fenced: Of a copy: another store commits there; a promotion has fenced the root meanwhile.
    """
    if journal.publisher is not None:
        journal.publisher.publish()
        journal.publisher.check_may_serve()
    fsync = config.fsync and journal.publisher is None
    mark_durable(root, {"journal": journal.version}, fsync=fsync)


def _wal_folders(root: Root, wal_folder: Path) -> list[Path]:
    """Return the folders a write-ahead log may be in: that of the newest, and that of this start.

    Raises:
        InvalidRequest: The newest one is not there: without it, acknowledged records are lost.
    """
    newest = _newest_wal(root)
    if root.identity.wal_dir and not newest.is_dir() and not any(wal_folder.glob("*.wal")):
        message = f"{root.path} has its write-ahead log in {newest}, which is not there: bring it"
        message += " back; or create it empty, which gives up what was acknowledged last"
        raise InvalidRequest(message)
    return [newest] if newest == wal_folder else [newest, wal_folder]


def _newest_wal(root: Root) -> Path:
    return Path(root.identity.wal_dir or root.path / "wal")


def _with_wal_folder(root: Root, folder: Path) -> Root:
    """Say in `root.json` where the newest write-ahead log is, before it has its first group."""
    name = "" if folder == root.path / "wal" else str(folder)
    if name != root.identity.wal_dir:
        return Root(root.path, change_identity(root, lambda _: {"wal_dir": name}))
    return root


def _read_wal(root: Root, folder: Path, tail: Tail, last_position: int) -> Replay:
    """Read the write-ahead log's groups for this start, and set other files aside."""
    replay = read_wal(
        folder,
        bytes.fromhex(root.identity.root_id),
        epoch=tail.epoch,
        opened_at=tail.opened_position,
        last_position=last_position,
    )
    if replay.torn:
        _log.warning("%s: cut a torn group at byte %d: it was never acknowledged", *replay.torn)
    set_aside(replay.stale)
    return replay


def _tell_if_cut(folder: Path, end: int | None, tail: Tail) -> None:
    """Warn if the log ends before Delta does: it was truncated or zeroed.

    What Delta has of an epoch went through the log before, whose newest group stays until a store
    that ends well removes all its files. Decision: it is no reason to refuse the start. Delta's end
    is the mark, which costs nothing; it cannot tell whether anything came after it. On a shared
    root that another machine wrote to last, the log is there, and this says so, too.
    """
    ends_before = end is not None and end < tail.last_position
    if ends_before and 0 < tail.opened_position < tail.last_position:
        _log.error(
            "%s was truncated or zeroed, or is not the log that was written last: it ends at"
            " position %d, Delta at %d; if more was acknowledged after that, it is lost",
            folder,
            end,
            tail.last_position,
        )


def _room(root: Root, wal_folder: Path, config: StoreConfig) -> DiskRoom:
    wal_folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    least = RoomLimits(config.min_free_bytes, config.min_free_percent, config.reserve_bytes)
    return DiskRoom([root.path, wal_folder], least)


def _new_wal(root: Root, folder: Path, epoch: int, config: StoreConfig, room: DiskRoom) -> Wal:
    return Wal(
        folder,
        bytes.fromhex(root.identity.root_id),
        epoch,
        file_bytes=config.wal_file_bytes,
        max_files=config.max_wal_files,
        write=sync_write if config.fsync else plain_write,
        has_room_for=room.has_room_for,
    )


def _heal(root: Root) -> None:
    heal(root, ["journal"])
    try:
        with jobs_lease(root.path):
            heal(root, ["history", "state"])
    except Locked:
        _log.info("a job is running: it has checked history and state")


def _replay_all(
    root: Root,
    journal: Journal,
    tail: Tail,
    folders: list[Path],
    ack: str,
    witness: Witness | None,
) -> int:
    """Commit what the journal lacks of each write-ahead log; the last position then."""
    last_position = tail.last_position
    if journal.epoch < tail.epoch:  # of a copy, whose commits no writer has numbered
        journal.begin_epoch(tail.epoch)
    for folder in folders:
        replay = _read_wal(root, folder, tail, last_position)
        if ack == "wal" and folder == folders[0]:  # the newest
            _tell_if_cut(folder, replay.end, tail)
        last_position = _replay(root, journal, replay.groups, last_position, tail.segment + 1)
    if witness is not None:
        witness.check_whole(last_position)
    return last_position


def _replay(
    root: Root, journal: Journal, groups: list[WalGroup], last_position: int, segment: int
) -> int:
    """Commit groups under the epoch that wrote them; the last position then."""
    unfit = UnfitRecords(root.path)
    batch: list[Record] = []
    size = 0
    for group in groups:
        batch += codec.unpack_all(group.payload)
        size += len(group.payload)
        if size >= _REPLAY_BYTES or group is groups[-1]:
            first, last_position = last_position + 1, last_position + len(batch)
            table = unfit.table(batch, first, epoch=journal.epoch, segment=segment)
            journal.append(Commit(table, first, last_position, segment))
            batch, size = [], 0
    return last_position


def _commit(records: list[Record], first: int, epoch: int, segment: int) -> Commit:
    table = rows.to_table(records, first_position=first, epoch=epoch, segment=segment)
    return Commit(table, first, first + len(records) - 1, segment)
