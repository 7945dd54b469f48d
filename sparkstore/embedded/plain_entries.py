"""Rows of `queue_messages` that need no query: most entries are as one row of a table says.

An entry is plain if

- it is a row of `state`, and no record after P names its message or destroys its queue; or the one
  record after P that names its message enqueued it, with its content, on a queue that stayed;
- it has no annotations, if columns are asked for that tell of them;
- the record at its position brought its content, if that is asked for, and the body in one piece.

Such rows are read by columns. The query of the view has all others (`PlainEntries.left`), and none
of these: its state is without the rows that are plain. So each row of the view comes from one of
the two.

Why no more has to be looked at: all records that change an entry name its message, but for the
destruction of its queue. A record brings content only where nothing of its message was stored
before, so a message whose one record did that is in no state.

Decision: Arrow alone. DuckDB took 1.0 s of processor time for a million entries, of which 0.2 were
in the tail, and Arrow takes 0.2.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from sparkstore.core.records import Kind
from sparkstore.embedded.moment import Moment, dataset
from sparkstore.recovery.arrow_fold import rows_that_count
from sparkstore.sql.queries import CONTENT
from sparkstore.tables.schema import ROW, STATE
from sparkstore.tables.snapshot import FileStats, columns_of

_ENTRY = {
    "queue": "queue",
    "message_id": "message_id",
    "position": "position",
    "enqueued_at": "at",
    "acquired_by": "acquired_by",
    "delivery_count": "delivery_count",
    "priority": "priority",
    "expires_at": "expires_at",
    "message_bytes": "message_bytes",
}
"""The columns of the view that an entry has, by their names in `state`."""
_STATE = pa.schema([field.with_nullable(nullable=True) for field in STATE])
_ENTRIES = columns_of(_STATE, [*_ENTRY.values(), "epoch"])
_TAIL = (
    "position", "epoch", "kind", "at", "queue", "message_id", "priority", "expires_at",
    "header_bytes", "body_bytes",
)  # fmt: skip
_BODY = "body"
_BATCH_ROWS = 1 << 14
_GATHERED_ROWS, _GATHERED_BYTES = 1 << 14, 1 << 26
"""So much content is joined with entries at once."""
_MOST_PLACES = 1 << 24
"""So many positions, at most, have a place in a list. To look one up takes a twentieth of what it
takes in an index of 800,000."""
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_KINDS: dict[str, type] = {"queue": str, "message_id": int, "position": int}

OPERATORS = frozenset(_OPERATORS)
"""How a condition may compare."""


class Condition(NamedTuple):
    """A condition on the rows of a view.

    Attributes:
        column: The name of a column of the view.
        operator: One of `OPERATORS`.
        value: What the column is compared with.
    """

    column: str
    operator: str
    value: Any


class Remainder(NamedTuple):
    """Rows that the query of the view has to answer, as conditions.

    Attributes:
        messages: On records: those of these messages.
        entries: On rows of `state`: these.
    """

    messages: ds.Expression
    entries: ds.Expression


class _Tail(NamedTuple):
    """What the records after P say.

    Attributes:
        fresh: The entries that are plain by one of them.
        named: The ids of all other messages that they name.
        destroyed: The queues that they destroy.
    """

    fresh: pa.Table
    named: pa.Array
    destroyed: pa.Array


class PlainEntries:
    """The plain entries of a moment, and what is left beside them."""

    def __init__(
        self,
        moment: Moment,
        columns: Sequence[str],
        conditions: Collection[Condition] = (),
        ids: tuple[int, int] | None = None,
    ) -> None:
        """Read the tail.

        Args:
            moment: Whose tables are read, without a gap.
            columns: The columns of `queue_messages` that are asked for.
            conditions: Narrow what is read. Of those on an entry's time, and on a value of another
                type than the column's, none is used.
            ids: Of the tail only what is about messages between these is looked at.
        """
        self._moment, self._columns = moment, columns
        self.content = [name for name in columns if name in CONTENT]
        asks_detail = not CONTENT.union(_ENTRY).issuperset(columns)
        segment, nothing = ds.field("segment"), pc.scalar(value=False)
        self._is_other = (segment.is_null() | (segment != 1)) if self.content else nothing
        self._is_other |= ds.field("detail").is_valid() if asks_detail else nothing
        self._has_others = asks_detail or bool(self.content)
        self._where = pc.scalar(value=True)
        for condition in conditions:
            if type(condition.value) is _KINDS.get(condition.column):
                compare = _OPERATORS[condition.operator]
                self._where &= compare(ds.field(condition.column), condition.value)
        self._in_pieces = list[pa.RecordBatch]()
        self._tail = self._read_tail(ids)

    def of_state(self, files: Sequence[FileStats]) -> Iterator[pa.RecordBatch]:
        """Read the plain entries in some files of `state`, without content."""
        names = [_ENTRY[name] for name in self._columns if name in _ENTRY] or ["position"]
        return map(self._row, self._in_state(files, names).to_batches(_BATCH_ROWS))

    def of_tail(self) -> Iterator[pa.RecordBatch]:
        """Read the plain entries of the tail without their content."""
        return map(self._row, self._tail.fresh.to_batches(_BATCH_ROWS))

    def with_content(self, name: str, files: Sequence[FileStats]) -> Iterator[pa.RecordBatch]:
        """Read the plain entries whose content is in some files of `history` or of `journal`.

        An entry and the record that brought it have one position. In the journal they have one
        epoch, too: a fenced writer may have written another record at that position. Of history all
        rows count. What has its body in pieces is then in `left_of_content`.
        """
        entries = self._entries_at(name, files)
        if not entries.num_rows:
            return
        ends = pc.min_max(entries["position"]).as_py()
        records = dataset(files, ROW, "segment").to_batches(
            columns=["position", "epoch", *self.content],
            filter=_between(ds.field("position"), ends["min"], ends["max"]),
            batch_size=_BATCH_ROWS,
        )
        places = _Places(entries["position"])
        for gathered in _gathered(records):
            place = places.of(gathered["position"])
            content = _one(gathered.filter(place.is_valid()))
            entry = entries.take(place.drop_null())
            if name == "journal":
                is_ours = pc.equal(content["epoch"], entry["epoch"])
                entry, content = entry.filter(is_ours), content.filter(is_ours)
            if _BODY in self.content and content[_BODY].null_count:
                is_whole = content[_BODY].is_valid()
                self._in_pieces.append(entry.filter(pc.invert(is_whole)))
                entry, content = entry.filter(is_whole), content.filter(is_whole)
            yield self._row(entry, content)

    def left(self) -> Remainder | None:
        """Return the messages that are not plain by their entries; None: there are none."""
        ids = self._tail.named
        if self._has_others:
            where = (ds.field("part") == "entry") & self._is_other & self._where
            state = dataset(self._moment.state, STATE, "part")
            others = state.to_table(["message_id"], filter=where)["message_id"]
            ids = pa.concat_arrays([ids, others.combine_chunks()]).unique()
        entries = ds.field("message_id").isin(self._tail.named) | self._is_other
        return _left(ids, entries)

    def left_of_content(self) -> Remainder | None:
        """Return the messages that are not plain by their content, in what was read of it."""
        if not any(map(len, self._in_pieces)):
            return None
        rows = pa.Table.from_batches(self._in_pieces).combine_chunks()
        positions = rows["position"].combine_chunks()
        return _left(rows["message_id"].combine_chunks(), ds.field("position").isin(positions))

    def _read_tail(self, ids: tuple[int, int] | None) -> _Tail:
        rows = self._tail_rows(ids)
        is_end = pc.equal(rows["kind"], Kind.DESTROYED.column)
        destroyed = rows.filter(is_end)["queue"].drop_null().unique()
        rows = rows.filter(rows["message_id"].is_valid()).combine_chunks()
        named = rows["message_id"].combine_chunks()
        times = named.value_counts().field("counts").take(named.dictionary_encode().indices)
        is_fresh = pc.and_(pc.equal(rows["kind"], Kind.ENQUEUED.column), rows["is_whole"])
        is_fresh = pc.and_(is_fresh, pc.equal(times, 1))
        is_fresh = pc.and_not(is_fresh, pc.is_in(rows["queue"], destroyed))
        named = named.filter(pc.invert(is_fresh).combine_chunks()).unique()
        return _Tail(self._fresh(rows.filter(is_fresh)), named, destroyed)

    def _tail_rows(self, ids: tuple[int, int] | None) -> pa.Table:
        """Read the records after P that count, and those that are about no message."""
        moment, position, message = self._moment, ds.field("position"), ds.field("message_id")
        where = position > moment.folded
        if ids is not None:
            where &= message.is_null() | _between(message, *ids)
        if moment.point is not None:
            where &= position <= moment.point.position
        columns = {name: ds.field(name) for name in _TAIL} | {
            "is_whole": ds.field("protocol").is_valid() & ds.field("detail").is_null()
        }
        moved, ours = (
            moment.rows(name).to_table(columns, filter=where) for name in ("history", "journal")
        )
        ours = rows_that_count(ours, epoch=moment.epoch)
        ours = ours.filter(pc.greater(ours["position"], moment.in_history))
        return pa.concat_tables([moved, ours])

    def _fresh(self, rows: pa.Table) -> pa.Table:
        """Write entries as `state` has them."""
        ours = {
            "message_bytes": pc.add(rows["header_bytes"], rows["body_bytes"]),
            "delivery_count": pa.repeat(pa.scalar(0, pa.int32()), len(rows)),
            "acquired_by": pa.nulls(len(rows), pa.string()),
        }
        columns = [ours[name] if name in ours else rows[name] for name in _ENTRIES.names]
        entries = pa.Table.from_arrays(columns, schema=_ENTRIES).filter(self._where)
        asked = (_ENTRY[name] for name in self._columns if name in _ENTRY)
        return entries.select([*dict.fromkeys((*asked, "message_id", "position", "epoch"))])

    def _in_state(
        self, files: Sequence[FileStats], names: Sequence[str], where: ds.Expression | None = None
    ) -> pa.Table:
        """Read columns of plain entries from the state."""
        tail = self._tail
        wanted = (ds.field("part") == "entry") & ~self._is_other & self._where
        wanted = wanted if where is None else wanted & where
        read = [*{*names, "message_id", *["queue"] * bool(len(tail.destroyed))}]
        rows = dataset(files, STATE, "part").to_table(read, filter=wanted)
        if len(tail.named):
            rows = rows.filter(pc.invert(pc.is_in(rows["message_id"], tail.named)))
        if len(tail.destroyed):
            rows = rows.filter(pc.invert(pc.is_in(rows["queue"], tail.destroyed)))
        return rows.select(names)

    def _entries_at(self, name: str, files: Sequence[FileStats]) -> pa.RecordBatch:
        """Read the plain entries whose positions may be in some files."""
        least = min(file.positions[0] for file in files)
        largest = max(file.positions[1] for file in files)
        in_history, position = self._moment.in_history, ds.field("position")
        here = _between(position, least, largest)
        is_moved = position <= in_history
        fresh = self._tail.fresh.filter(here & (is_moved if name == "history" else ~is_moved))
        if name == "journal":
            return _one(fresh)
        folded = self._in_state(self._moment.state, fresh.column_names, here)
        return _one(pa.concat_tables([folded, fresh]))

    def _row(self, entry: pa.RecordBatch, content: pa.RecordBatch | None = None) -> pa.RecordBatch:
        if not self._columns:  # rows are counted
            return entry.select(["position"])
        values = [self._column(name, entry, content) for name in self._columns]
        return pa.RecordBatch.from_arrays(values, [*self._columns])

    @staticmethod
    def _column(name: str, entry: pa.RecordBatch, content: pa.RecordBatch | None) -> pa.Array:
        if name in _ENTRY:
            return entry[_ENTRY[name]]
        if name in CONTENT:
            assert content is not None
            return content[name]
        return pa.nulls(len(entry))  # annotations, and what is read from them


def _left(ids: pa.Array, entries: ds.Expression) -> Remainder | None:
    if not len(ids):
        return None
    ends, field = pc.min_max(ids).as_py(), ds.field("message_id")
    messages = _between(field, ends["min"], ends["max"]) & field.isin(ids)
    return Remainder(messages, messages & entries)


def _between(field: ds.Expression, least: int, largest: int) -> ds.Expression:
    return (field >= least) & (field <= largest)


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Put batches together, since each join builds an index of all entries."""
    waiting, rows, size = list[pa.RecordBatch](), 0, 0
    for batch in batches:
        waiting.append(batch)
        rows, size = rows + len(batch), size + batch.nbytes
        if rows >= _GATHERED_ROWS or size >= _GATHERED_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting)


class _Places:
    """Finds positions among those of entries."""

    def __init__(self, positions: pa.Array) -> None:
        """Make a list with a place for each position between the first and the last, if it fits."""
        self._positions = positions
        self._first, last = pc.min_max(positions).as_py().values()
        self._list: pa.Array | None = None
        if last - self._first < _MOST_PLACES:
            places = pc.subtract(positions, self._first)
            self._list = pc.inverse_permutation(places, max_index=last - self._first)

    def of(self, positions: pa.ChunkedArray) -> pa.Array:
        """Return at which entry each is, or null; all are between the first and the last."""
        whole = positions.combine_chunks()
        if self._list is None:
            return pc.index_in(whole, self._positions)
        return self._list.take(pc.subtract(whole, self._first))


def _one(rows: pa.Table) -> pa.RecordBatch:
    """Return the rows as one batch."""
    batches = rows.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], rows.schema)
