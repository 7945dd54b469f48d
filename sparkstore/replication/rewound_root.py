"""A root as it stood at a time, as tables of its own in a temporary folder, for a backup of then.

What a root was at position N is the fold of its records up to N (`recovery.point_in_time` finds N
for a time). Its tables are these:

    state     the version of `state` that point_in_time starts from: P ≤ N
    history   the files of today's history that end at N or before; of those that reach beyond N,
              and what is between them, the records up to N, in files of their own
    journal   the records that today's history does not have, up to N

So every record up to N is there once, and none after it.

Why that is consistent while a store and jobs are at work: a record never changes, whatever table it
is in, and the fold of records up to P is `state` of P, whichever compaction wrote it. So the
fold of these tables is that of all records up to N. The tables are looked up in the order state,
journal, history, as recovery does, since records move the other way. Files are linked, so those
that a VACUUM takes meanwhile stay; where they cannot be linked, one that is gone is an error.
Before anything is made of it, the folder is recovered as a root is: a hole is found by counting.

Why no message comes back without its content: history that was shortened keeps the content that a
message needed on a queue *when it was shortened*. Of a message that was on a queue at N and had
left by then, it is gone. So the header of each message of the fold is looked for, and if one is not
there, nothing is made and the messages are named. Decision: refused, and not left out, since a
backup that lacks messages of its time would be taken for whole.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from sparkstore.content.reader import ContentReader
from sparkstore.errors import CorruptData, InvalidRequest, Unavailable
from sparkstore.recovery.point_in_time import AsOf, PointInTime, point_in_time
from sparkstore.recovery.recovery import journal_tail, read_state, recover
from sparkstore.replication.record_files import (
    WrittenFile,
    check_gapless,
    openings,
    rows_between,
    written_files,
)
from sparkstore.storage.local import LocalStorage
from sparkstore.tables.delta_contents import COPY, TableContents, commit, contents
from sparkstore.tables.root import Root
from sparkstore.tables.schema import STATE
from sparkstore.tables.snapshot import FileStats, snapshot

_NAMED = 10
_STATE_FILE = pa.schema([field for field in STATE if field.name not in {"part", "block"}])


@contextmanager
def rewound(root: Root, as_of: AsOf) -> Iterator[Root]:
    """Make a root's tables as they stood, in a folder that is removed in the end.

    Args:
        root: The root, or a copy of its tables; it is only read.
        as_of: A time, or `position=N`.

    Raises:
        InvalidRequest: There is no such time, it is in the future, or before what is kept; or a
            message of then has no content any more.
        CorruptData: A table is damaged.
        Unavailable: The tables changed while they were read: run it again.
    """
    point = point_in_time(root, as_of)
    with tempfile.TemporaryDirectory(prefix="sparkstore-rewound-") as name:
        then = Root(Path(name), root.identity)
        start = _history_start(root)
        _state(root, then, point, start)
        _records(root, then, point, start)
        copy = recover(then)
        if copy.last_position != point.position:
            message = f"{root.path} ends at {copy.last_position}, not at {point.position}, then:"
            raise CorruptData(f"{message} run sparkstore verify")
        if start > 1:
            _check_content(then, [*copy.state.messages], as_of)
        yield then


def _history_start(root: Root) -> int:
    """The first position from which today's history has no gaps."""
    rows = read_state(root, parts=("meta",))["history_start"].to_pylist()
    return max(rows, default=1)


def _state(root: Root, then: Root, point: PointInTime, start: int) -> None:
    """Name the files of the version of `state` that is not after the position, if there is one."""
    standing = contents(LocalStorage(root.path), "state", point.version)
    if point.version is None:  # all of history is folded
        standing.adds, standing.transactions = {}, {}
    wanted = dict(standing.adds)
    for path, add in standing.adds.items():
        if add["partitionValues"].get("part") == "meta":
            del wanted[path]
            wanted |= _meta(root, then, path, add, start)
        else:
            _link(root, then, f"state/{unquote(path)}")
    _commit(then, "state", wanted, standing)


def _meta(
    root: Root, then: Root, path: str, add: Mapping[str, Any], start: int
) -> dict[str, dict[str, Any]]:
    """Write the one row of `meta` anew: history may have been shortened since."""
    try:
        rows = pq.read_table(root.state / unquote(path), partitioning=None).to_pylist()
    except FileNotFoundError as reason:
        raise _gone(path) from reason
    new_rows = [{**row, "history_start": max(start, row["history_start"] or 1)} for row in rows]
    name = f"{Path(unquote(path)).parent}/part-{uuid4()}.snappy.parquet"
    file = then.state / name
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(new_rows, _STATE_FILE), file, coerce_timestamps="us")
    return {name: {**add, "path": name, "size": file.stat().st_size, "stats": None}}


def _records(root: Root, then: Root, point: PointInTime, start: int) -> None:
    """Name whole files of history, and write the records that come after them to the journal."""
    disk, last = LocalStorage(root.path), point.position
    tail = journal_tail(root)
    journal, journal_files = contents(disk, "journal"), snapshot(root.journal)
    history = contents(disk, "history")
    files = snapshot(root.history, history.version)
    end = min(last, max((file.positions[1] for file in files), default=0))
    whole = _whole_until(files, end)
    kept = {file.path for file in files if file.positions[1] <= whole}
    adds = {path: a for path, a in history.adds.items() if root.history / unquote(path) in kept}
    for path in adds:
        _link(root, then, f"history/{unquote(path)}")
    # Spark skips an append whose number was there before: those to come are numbered by position.
    history.transactions = {app: min(version, end) for app, version in history.transactions.items()}
    opened = [(tail.epoch, tail.opened_position), *openings(journal_files)]
    cut = _written(then.history, rows_between(files, whole, end, opened))
    check_gapless(cut, max(whole, min(start - 1, end)), end)
    _commit(then, "history", {**adds, **{file.name: file.add for file in cut}}, history)
    added = _written(then.journal, rows_between(journal_files, end, last, opened))
    check_gapless(added, end, last)
    schema = TableContents(protocol=journal.protocol, metadata=journal.metadata)
    _commit(then, "journal", {file.name: file.add for file in added}, schema)


def _written(table: Path, rows: Iterator[tuple[int, pa.Table]]) -> list[WrittenFile]:
    """Write records into a table's folder, each file in the folder of its segment."""
    table.mkdir(exist_ok=True)
    files = [*written_files(rows, table)]
    for file in files:
        (table / file.name).parent.mkdir(exist_ok=True)
        file.file.rename(table / file.name)
    return files


def _whole_until(files: list[FileStats], last: int) -> int:
    """Find the last position up to which no file has records after `last`."""
    astride = [file for file in files if file.positions[0] <= last < file.positions[1]]
    while astride:
        last = min(file.positions[0] for file in astride) - 1
        astride = [file for file in files if file.positions[0] <= last < file.positions[1]]
    return last


def _link(root: Root, then: Root, name: str) -> None:
    """Link a file of the root into the folder under its name, without copying its bytes."""
    source, target = (root.path / name).absolute(), then.path / name
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except FileNotFoundError as reason:
        raise _gone(name) from reason
    except OSError:  # another file system, or one without links
        target.symlink_to(source)


def _gone(name: str) -> Unavailable:
    return Unavailable(f"{name} went while it was read, as a job took it: run it again")


def _commit(
    then: Root, table: str, adds: Mapping[str, Mapping[str, Any]], source: TableContents
) -> None:
    (then.table(table) / "_delta_log").mkdir(parents=True, exist_ok=True)
    info, now_ms = {COPY: uuid4().hex}, time.time_ns() // 1_000_000
    commit(LocalStorage(then.path), table, TableContents(), adds, source, info, now_ms=now_ms)


def _check_content(then: Root, messages: list[int], as_of: AsOf) -> None:
    headers = ContentReader(then).headers(messages)
    lost = [message_id for message_id in messages if message_id not in headers]
    if lost:
        more = ", …" if len(lost) > _NAMED else ""
        named = ", ".join(map(str, lost[:_NAMED])) + more
        message = f"{len(lost)} messages that were on queues at {as_of} have no content any more"
        message += f" ({named}): history was shortened after they had left; say a later time"
        raise InvalidRequest(f"{message} (compact --history-days keeps it for longer)")
