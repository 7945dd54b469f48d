"""Headers of many messages at once, read from journal and history by columns. No body moves.

For a broker that starts and wants every header: a read by message id (`content`) costs a lookup
each, this one a pass over the files, whose statistics leave out what cannot hold a wanted message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake.exceptions import DeltaError

from sparkstore.arrow_fold import rows_that_count
from sparkstore.errors import CorruptData, Unavailable
from sparkstore.records import Kind, MessageHeader
from sparkstore.root import Root
from sparkstore.schema import ROW
from sparkstore.snapshot import FileStats, columns_of, read_files, snapshot

_IDS = 200_000
"""Message ids looked for in one pass: their headers are in memory together."""
_COLUMNS = columns_of(
    ROW, ["position", "epoch", "kind", "message_id", "protocol", "header", "body_bytes"]
)
_OPENINGS = columns_of(ROW, ["position", "epoch", "kind"])
_TRIES = 4


class Headers(NamedTuple):
    """Columns of some messages, of one length."""

    message_ids: list[int]
    headers: list[bytes | None]
    body_bytes: list[int]
    protocols: list[str]


def message_headers(
    root: Root, message_ids: Sequence[int], volatile: Mapping[int, MessageHeader], count: int
) -> Iterator[Headers]:
    """Headers of messages as their protocols encode them, `count` messages at a time.

    Args:
        root: Where; all that is wanted of it must be in a Delta commit.
        message_ids: Rising.
        volatile: Headers of those that are not in the root.
        count: Messages in one part, but for the last.

    Raises:
        CorruptData: The header of a message is in neither table.
        Unavailable: Storage did not answer, again and again.
    """
    for start in range(0, len(message_ids), _IDS):
        wanted = message_ids[start : start + _IDS]
        kept = [number for number in wanted if number not in volatile]
        found = _found(root, kept)
        for first in range(0, len(wanted), count):
            yield _columns(wanted[first : first + count], found, volatile)


_Found = dict[int, tuple[bytes | None, int, str]]


def _found(root: Root, wanted: Sequence[int]) -> _Found:
    """What a job or a merge moved away while it was being read is looked for again."""
    if not wanted:
        return {}
    for attempt in range(_TRIES):
        try:
            found = _read(root, wanted)
        except (OSError, DeltaError, pa.ArrowException) as reason:
            if attempt == _TRIES - 1:
                message = f"headers of messages cannot be read: {reason}; retry later"
                raise Unavailable(message) from reason
            continue
        if len(found) == len(wanted):
            return found
    missing = next(number for number in wanted if number not in found)
    message = f"the header of message {missing} is in neither table: run sparkstore verify"
    raise CorruptData(message)


def _read(root: Root, wanted: Sequence[int]) -> _Found:
    """The journal's files are listed first: what leaves it is in history already (Rule 5)."""
    first, last = wanted[0], wanted[-1]
    journal, history = snapshot(root.journal), snapshot(root.history)
    where = (
        (ds.field("message_id") >= first)
        & (ds.field("message_id") <= last)
        & ds.field("protocol").is_valid()
    )
    openings = read_files(journal, _OPENINGS, ds.field("kind") == Kind.OPENED.column)
    openings = openings.select(_OPENINGS.names)
    found: _Found = {}
    ids = pa.array(wanted, pa.int64())
    for files, fenced in ((history, None), (journal, openings)):
        for file in _overlapping(files, first, last):
            rows = read_files([file], _COLUMNS, where)
            if fenced is not None:
                rows = _that_count(rows, fenced)
            rows = rows.filter(pc.is_in(rows["message_id"], value_set=ids))
            found.update(_by_id(rows))
    return found


def _overlapping(files: Sequence[FileStats], first: int, last: int) -> Iterator[FileStats]:
    for file in files:
        least, largest = file.message_ids
        if least <= last and largest >= first:
            yield file


def _that_count(rows: pa.Table, openings: pa.Table) -> pa.Table:
    nulls = {
        name: pa.nulls(openings.num_rows, rows.schema.field(name).type)
        for name in ("message_id", "protocol", "header", "body_bytes")
    }
    marks = pa.table({**{n: openings[n] for n in _OPENINGS.names}, **nulls}).cast(rows.schema)
    return rows_that_count(pa.concat_tables([rows, marks]))


def _by_id(rows: pa.Table) -> _Found:
    columns = (rows[name].to_pylist() for name in ("header", "body_bytes", "protocol"))
    return dict(zip(rows["message_id"].to_pylist(), zip(*columns, strict=True), strict=True))


def _columns(
    wanted: Sequence[int], found: _Found, volatile: Mapping[int, MessageHeader]
) -> Headers:
    headers: list[bytes | None] = []
    body_bytes: list[int] = []
    protocols: list[str] = []
    for number in wanted:
        if (kept := volatile.get(number)) is not None:
            told = (kept.header, kept.body_bytes, kept.protocol or "raw")
        else:
            told = found[number]
        headers.append(told[0])
        body_bytes.append(told[1])
        protocols.append(told[2])
    return Headers([*wanted], headers, body_bytes, protocols)
