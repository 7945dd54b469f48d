"""`publish` brings `<root>/current` up to date: what Delta has of the queues, as two plain tables.

Who commits: only deltalake (ARCHITECTURE: Rule 2), and only the holder of `current.lock`, which a
publication has from before it reads to its end. So no later publication is older than one before.
The journal, history and state are read as `sparkstore queues` reads them, beside a store and jobs
at work, and nothing of them is changed or locked.

Two commits, messages first, then queues. Each is one Delta commit, so a reader of one table sees
one moment, and a kill anywhere leaves each table as it was or as it should be. A kill between the
two leaves messages newer than queues. What `queues` says of itself (`as_of`, `as_of_position`) is
therefore true of `queue_messages` too, as "at least"; exactly which position either has is in the
metadata of its newest commit. Files that a kill left without a commit go with a vacuum. After a
power cut the end of a table is healed as that of any other (`healing`, `marks`). One that cannot be
healed is deleted and begun anew, since it is made of others.

What it costs: a fold of `state` and all that is after it, as for `sparkstore queues`; the headers
of messages in blocks that changed; and the files of these blocks. A block (a range of
`schema.BLOCK_IDS` message ids) has changed if its entries are not what the table says. Decision:
they are compared with the table itself and not with a fingerprint that was left beside it, so a
table that somebody damaged is mended, not believed. A column of freshness on each message would
make each block a changed one. Rejected: writing it by Spark in the fold, which would make everyone
who compacts pay 2 s of planning and more, and leave readers without a JVM waiting for one.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, write_deltalake
from deltalake.exceptions import DeltaError

from sparkstore.current.columns import MESSAGES, NARROW, QUEUES, blocks_of, messages, narrow, queues
from sparkstore.errors import CorruptData, Unavailable
from sparkstore.jobs.failpoints import Failpoint, no_failpoint
from sparkstore.jobs.report import JobReport
from sparkstore.recovery.message_headers import typed_headers
from sparkstore.recovery.recovery import RecoveredRoot, recover_columns
from sparkstore.tables.delta_files import versions
from sparkstore.tables.delta_log_cleaning import clean_log
from sparkstore.tables.fencing import COPY
from sparkstore.tables.healing import heal
from sparkstore.tables.lock import FileLock
from sparkstore.tables.marks import lower_mark, mark_durable
from sparkstore.tables.root import Root, open_root

_log = logging.getLogger(__name__)

FOLDER = "current"
BOUNDARIES = ("read", "messages written", "queues written")
"""Moments of a publication, in order."""
TIDY_EVERY = 10
_NAMES: Mapping[str, pa.Schema] = {
    f"{FOLDER}/queue_messages": MESSAGES,
    f"{FOLDER}/queues": QUEUES,
}
TABLES = _MESSAGES, _QUEUES = tuple(_NAMES)
_CONFIGURATION = {
    "delta.checkpointInterval": "100",
    "delta.enableExpiredLogCleanup": "false",
}
_ROWS = 1 << 16
"""Rows whose headers are in memory together."""
_READER_HOURS = 1
_TRIES = 3
_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentReport(JobReport):
    """Figures of a publication of the current state.

    Attributes:
        as_of: When it began to read, UTC: what was in Delta then is in the tables.
        as_of_position: Position of the last record that they show.
        queues: Rows of `current/queues`.
        messages: Rows of `current/queue_messages`.
        blocks: Ranges of message ids that these are in.
        blocks_written: Blocks that changed, and were written anew or emptied.
        rows_written: Rows that were written for them.
    """

    as_of: str
    as_of_position: int
    queues: int
    messages: int
    blocks: int
    blocks_written: int
    rows_written: int


def publish(
    where: Root | str | Path, *, at: Failpoint = no_failpoint, as_of: datetime | None = None
) -> CurrentReport:
    """Publish the queues as they are in Delta now.

    Args:
        where: The root, of any role, or the path of its folder.
        at: Called at each of `BOUNDARIES`.
        as_of: When `where` was begun to be made, if it is the copy of a root in a bucket.

    Raises:
        InvalidRequest: There is no root there.
        Locked: Another publication is at work.
        CorruptData: The root is not whole; the tables are as they were.
        Unavailable: Storage did not answer, or tables moved on again and again; run it again.
        OSError, DeltaError: No room, or no permission; the table is as it was.
    """
    began = time.monotonic()
    root = where if isinstance(where, Root) else open_root(where)
    lock = FileLock(root.path / f"{FOLDER}.lock", f"{root.path / FOLDER}")
    try:
        tables = {name: _opened(root, name) for name in _NAMES}
        before = {name: table.version() for name, table in tables.items()}
        as_of = as_of or datetime.now(UTC)
        recovered, entries = _read(root)
        position = recovered.last_position
        queue_rows = queues(recovered.state.queues, entries, position, as_of)
        rows = narrow(entries)
        del entries
        at("read")
        signed = _signed(position, as_of)
        blocks = blocks_of(rows)
        changed = _replace_changed(root, tables[_MESSAGES], blocks, signed)
        at("messages written")
        _commit(root, _QUEUES, tables[_QUEUES], queue_rows, signed)
        at("queues written")
        for name, table in tables.items():
            if table.version() > before[name] and table.version() % TIDY_EVERY == 0:
                _tidy(root, name, table, signed)
    finally:
        lock.release()
    return CurrentReport(
        job="current",
        root=str(root.path),
        as_of=as_of.isoformat(),
        as_of_position=position,
        queues=queue_rows.num_rows,
        messages=rows.num_rows,
        blocks=len(blocks),
        blocks_written=len(changed),
        rows_written=sum(blocks[block].num_rows for block in changed if block in blocks),
        seconds=round(time.monotonic() - began, 3),
    )


def _read(root: Root) -> tuple[RecoveredRoot, pa.Table]:
    """The fold; tables that moved on while they were read are read again."""
    failure: Exception | None = None
    for _ in range(_TRIES):
        try:
            return recover_columns(root)
        except (CorruptData, DeltaError, OSError) as reason:
            failure = reason
    if isinstance(failure, CorruptData):
        raise failure
    message = f"{root.path} cannot be read: {failure}: look at the storage, run it again"
    raise Unavailable(message) from failure


def _opened(root: Root, name: str) -> DeltaTable:
    """Open the table, healed; a new one if there is none, or none that can be used."""
    path, reason, is_copy = root.table(name), "it has no version", root.identity.role == COPY
    try:
        if versions(path):
            if not is_copy:
                heal(root, [name])
            table = DeltaTable(str(path))
            if pa.schema(table.schema().to_arrow()).names == _NAMES[name].names:
                return table
        reason = "it has the columns of another version"
    except (CorruptData, DeltaError) as broken:
        reason = str(broken)
    if path.exists() and is_copy and versions(path):
        where = f"{root.identity.primary}/{name}"
        message = f"{where} cannot be used, {reason}: delete what is there, it is made anew then"
        raise CorruptData(message)
    if path.exists():
        if not is_copy:
            _log.warning("%s is made anew from the root: %s", path, reason)
        shutil.rmtree(path)
    lower_mark(root, name, -1)
    return DeltaTable.create(
        str(path),
        schema=_NAMES[name],
        partition_by=["block"] if name == _MESSAGES else None,
        configuration=_CONFIGURATION,
    )


def _changed(table: DeltaTable, new: Mapping[int, pa.Table]) -> list[int]:
    """Blocks whose rows in the table are not the new ones."""
    files = pa.table(table.get_add_actions(flatten=True))
    old = {*files["partition.block"].to_pylist()} if files.num_rows else set[int]()
    dataset = table.to_pyarrow_dataset()
    return [
        block
        for block in sorted({*old, *new})
        if block not in new or block not in old or not _is_same(dataset, block, new[block])
    ]


def _is_same(dataset: ds.Dataset, block: int, rows: pa.Table) -> bool:
    """Tell whether the table has a block's entries as they are.

    A block that cannot be read differs.
    """
    try:
        standing = dataset.to_table(columns=NARROW.names, filter=ds.field("block") == block)
        standing = standing.sort_by("position").cast(NARROW)
    except (OSError, pa.ArrowException):
        return False
    return all(standing[name].equals(rows[name]) for name in NARROW.names)


def _replace_changed(
    root: Root, table: DeltaTable, blocks: Mapping[int, pa.Table], signed: CommitProperties
) -> list[int]:
    """Replace the files of changed blocks in one commit, and return these blocks.

    Rows get their headers as deltalake asks for them, on another thread: it cannot open a table
    within its own call.
    """
    changed = _changed(table, blocks)
    failure: list[BaseException] = []

    def batches(reader: ThreadPoolExecutor) -> Iterator[pa.RecordBatch]:
        try:
            for rows in (blocks[block] for block in changed if block in blocks):
                for start in range(0, rows.num_rows, _ROWS):
                    part = reader.submit(_with_headers, root, rows.slice(start, _ROWS))
                    yield from part.result().to_batches()
        except BaseException as reason:  # through deltalake it comes back as text
            failure.append(reason)
            raise

    if changed:
        with ThreadPoolExecutor(1) as reader:
            new = pa.RecordBatchReader.from_batches(MESSAGES, batches(reader))
            where = f"block IN ({', '.join(map(str, changed))})"
            try:
                _commit(root, _MESSAGES, table, new, signed, where)
            except Exception:
                if failure:
                    raise failure[0] from None
                raise
    return changed


def _commit(
    root: Root,
    name: str,
    table: DeltaTable,
    rows: pa.Table | pa.RecordBatchReader,
    signed: CommitProperties,
    where: str | None = None,
) -> None:
    """Put rows in the place of all of a table, or of those for which a predicate holds."""
    write_deltalake(
        table,
        rows,
        mode="overwrite",
        predicate=where,
        commit_properties=signed,
        post_commithook_properties=_NO_HOOKS,
    )
    table.update_incremental()
    mark_durable(root, {name: table.version()})


def _with_headers(root: Root, rows: pa.Table) -> pa.Table:
    ids = sorted(pc.unique(rows["message_id"]).to_pylist())
    return messages(rows, typed_headers(root, ids))


def _tidy(root: Root, name: str, table: DeltaTable, signed: CommitProperties) -> None:
    """Remove files that no reader can be using any more, and old versions."""
    table.create_checkpoint()
    table.vacuum(
        retention_hours=_READER_HOURS,
        dry_run=False,
        enforce_retention_duration=False,
        full=True,  # also what a kill left without a commit
        commit_properties=signed,
        post_commithook_properties=_NO_HOOKS,
    )
    table.update_incremental()
    mark_durable(root, {name: table.version()})
    clean_log(root, name, 3600.0 * _READER_HOURS)


def _signed(position: int, as_of: datetime) -> CommitProperties:
    fresh = {"as_of_position": str(position), "as_of": as_of.isoformat()}
    return CommitProperties(custom_metadata={f"sparkstore.{k}": v for k, v in fresh.items()})
