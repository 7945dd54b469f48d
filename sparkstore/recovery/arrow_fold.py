"""The fold of `sparkstore.core.fold`, vectorised over Arrow: a million entries in seconds.

Entries are folded by columns, never one by one. Per queue and message:

* the entry is there if its last `enqueued` is after its last `dequeued` and after the last
  `destroyed` of its queue. An earlier `enqueued` of the same message on the same queue always has
  one of the two after it, so each `enqueued` is judged alone;
* it is acquired by the holder of the last `acquired` after that `enqueued`, unless a `released`
  came after; the delivery count is that of the last `released` after it; its annotations are the
  last that one of these, or that `enqueued` itself, brought.

Wiring, links, refusals and meta records are few: they go through `fold.apply` itself, on a state
without entries; unsettled deliveries are `arrow_links`.
A property test holds this equal to the oracle for every prefix of generated histories.

Decision: Arrow's own kernels and no NumPy. Entries go from columns into packed columns
(`entries`), some thousands at a time. A Python object for each of millions, all at once, would be
most of the time and of the memory of a start.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sparkstore.core import fold
from sparkstore.core.entries import NEVER, Columns
from sparkstore.core.fold import MemberState, QueueState, State
from sparkstore.core.records import ENTRY_KINDS, ExchangeBindingKey, Kind
from sparkstore.errors import CorruptData
from sparkstore.recovery.arrow_links import add_deliveries, add_links
from sparkstore.tables.arrow_values import as_integers, as_list
from sparkstore.tables.rows import to_records
from sparkstore.tables.schema import STATE

_ENTRY_COLUMNS = ["queue", "message_id", "position", "at", "priority", "expires_at"]
_HELD_COLUMNS = ["message_bytes", "acquired_by", "delivery_count", "detail"]
_ENTRIES = pa.schema([STATE.field(name) for name in (*_ENTRY_COLUMNS, *_HELD_COLUMNS)])
_MANY = {*ENTRY_KINDS, Kind.CONTENT, Kind.STAGING_ABORTED, Kind.UNSETTLED, Kind.SETTLED}
_FEW = [kind for kind in Kind if kind not in _MANY]
"""Kinds that go through the oracle, one by one."""
_KEY_BITS = 62
_PACKED_AT_ONCE = 1 << 16
"""Entries that are packed together: whole chunks of `entries`."""


def rows_that_count(rows: pa.Table, *, epoch: int = 0) -> pa.Table:
    """Rows without those of a fenced writer (ARCHITECTURE: Rule 3), in their order.

    Args:
        rows: With the columns position, epoch and kind.
        epoch: Epoch of the newest `opened` before all of them; 0 if there is none.
    """
    opened = rows.filter(pc.equal(rows["kind"], Kind.OPENED.column))
    openings = list(zip(as_list(opened["position"]), as_list(opened["epoch"]), strict=True))
    counts: Any = None
    for old in pc.unique(rows["epoch"]).to_pylist():
        newer = [position for position, other in openings if other > old]
        if newer or old < epoch:
            limit = 0 if old < epoch else min(newer)
            fenced = pc.and_(
                pc.equal(rows["epoch"], old), pc.greater_equal(rows["position"], limit)
            )
            counts = pc.invert(fenced) if counts is None else pc.and_not(counts, fenced)
    if counts is None or pc.all(counts).as_py() is not False:
        return rows
    return rows.filter(counts)


def fold_tables(state_rows: pa.Table, rows: pa.Table) -> State:
    """The state after `rows`, which all count and follow the fold `state_rows` in position order.

    Args:
        state_rows: Content of the table `state`, in any order; empty before the first fold.
        rows: At least `schema.FOLD_COLUMNS`.

    Raises:
        CorruptData: A record is about a queue or a link that does not exist, or is of a kind that
            only a newer version knows.
    """
    state, entries = fold_columns(state_rows, rows)
    del rows, state_rows  # before the entries are copied into their order
    _fill(state, entries)
    return state


def fold_columns(state_rows: pa.Table, rows: pa.Table) -> tuple[State, pa.Table]:
    """Fold as `fold_tables`, with the entries beside the state, as columns, in no particular order.

    They are those of `Entry` by their names, `queue` and `message_id`.

    Raises:
        CorruptData: As `fold_tables`, but whether the queue of an entry is there is not looked at.
    """
    state = _meta_and_wiring(state_rows)
    add_links(state, state_rows)
    destroyed = _apply_wiring(state, rows)
    _decide(state, rows)
    state.staged = _staged(state_rows, rows)
    add_deliveries(state, state_rows, rows)
    if rows.num_rows:
        state.position = rows["position"][-1].as_py()
    base = state_rows.filter(pc.equal(state_rows["part"], "entry"))
    entries = _left_of(pa.concat_tables([_base_entries(base), _enqueued(rows)]), rows, destroyed)
    return state, _holders(entries, rows)


def _meta_and_wiring(state_rows: pa.Table) -> State:
    state = State()
    parts = pa.array(["meta", "member", "wiring"])
    few = state_rows.filter(pc.is_in(state_rows["part"], parts))
    for row in few.to_pylist():
        if row["part"] == "meta":
            state.position, state.epoch = row["position"], row["epoch"]
            state.next_message_id = row["message_id"]
        elif row["part"] == "member":
            state.members[row["member"]] = MemberState(row["request"], _refusals(row["detail"]))
        else:
            _add_wiring(state, row)
    return state


def _add_wiring(state: State, row: dict[str, Any]) -> None:
    """Add a row of wiring; which of the three names it has tells what it is about."""
    queue, exchange, key, detail = (
        row[name] for name in ("queue", "exchange", "binding_key", "detail")
    )
    if key is not None and queue is None and exchange is None:
        state.prepared[key] = detail
    elif key is not None and queue is None:
        state.configured[exchange, key] = detail
    elif key is not None:
        state.bindings[ExchangeBindingKey(exchange, queue, key)] = detail
    elif queue is not None:
        state.queues[queue] = QueueState(detail, row["position"])
    else:
        state.exchanges[exchange] = detail


def _apply_wiring(state: State, rows: pa.Table) -> dict[str, int]:
    """Apply the few records that are not about entries; where each queue was last destroyed."""
    _check_kinds(rows)
    kinds = pa.array([kind.column for kind in _FEW])
    destroyed: dict[str, int] = {}
    for position, epoch, record in to_records(rows.filter(pc.is_in(rows["kind"], kinds))):
        try:
            fold.apply(state, position, record, epoch)
        except KeyError as unknown:
            message = f"record {position} ({record.kind.column}) is about {unknown}, not there"
            raise CorruptData(message) from unknown
        if record.kind is Kind.DESTROYED and record.queue is not None:
            destroyed[record.queue] = position
    return destroyed


def _check_kinds(rows: pa.Table) -> None:
    unknown = {*pc.unique(rows["kind"]).to_pylist()} - {kind.column for kind in Kind}
    if unknown:
        message = f"records of the unknown kind {min(unknown)!r}: install a newer sparkstore"
        raise CorruptData(message)


def _refusals(detail: str) -> dict[int, str]:
    """Refusals of a member by request, rising, from its row of `state`."""
    return dict(sorted((int(request), why) for request, why in json.loads(detail).items()))


def _decide(state: State, rows: pa.Table) -> None:
    """The last request of each member that the records name."""
    asked = rows.select(["member", "request"]).filter(rows["request"].is_valid()).drop_null()
    last = asked.group_by("member").aggregate([("request", "max")])
    for member, request in zip(*(as_list(last[name]) for name in last.column_names), strict=True):
        fold.decided(state, member, request)


def _staged(state_rows: pa.Table, rows: pa.Table) -> dict[int, int]:
    """Messages whose header came with content, and that nothing ended since."""
    before = state_rows.filter(pc.equal(state_rows["part"], "staged"))
    content = _of_kind(rows, Kind.CONTENT)
    brought = content.filter(content["body_bytes"].is_valid())  # null: a piece without a header
    columns = ["message_id", "position"]
    last: dict[int, int] = {}
    for table in (before, brought):
        last |= zip(*(as_list(table[name]) for name in columns), strict=True)
    if not last:
        return {}
    ends = _of_kind(rows, Kind.ENQUEUED, Kind.STAGING_ABORTED)
    ends = ends.filter(pc.is_in(ends["message_id"], pa.array([*last], pa.int64())))
    for message_id, position in zip(*(as_list(ends[name]) for name in columns), strict=True):
        if position > last.get(message_id, position):
            del last[message_id]
    return last


def _base_entries(base: pa.Table) -> pa.Table:
    return base.select(_ENTRIES.names).cast(_ENTRIES)


def _of_kind(rows: pa.Table, *kinds: Kind) -> pa.Table:
    """Rows of some kinds; batches that have no others are not copied: of a backlog, nearly all."""
    wanted = pa.array([kind.column for kind in kinds])
    batches: list[pa.RecordBatch] = []
    for batch in rows.to_batches():
        is_wanted = pc.is_in(batch["kind"], wanted)
        count = pc.sum(is_wanted).as_py()
        if count:
            batches.append(batch if count == batch.num_rows else batch.filter(is_wanted))
    return pa.Table.from_batches(batches, rows.schema)


def _enqueued(rows: pa.Table) -> pa.Table:
    needed = [*_ENTRY_COLUMNS, "kind", "header_bytes", "body_bytes", "detail"]
    enqueued = _of_kind(rows.select(needed), Kind.ENQUEUED)
    count = enqueued.num_rows
    sizes = (enqueued["header_bytes"], enqueued["body_bytes"])
    length = pc.add(*(pc.fill_null(size, 0) if size.null_count else size for size in sizes))
    columns = [enqueued[name] for name in _ENTRY_COLUMNS]
    nobody, never = pa.nulls(count, pa.string()), pa.repeat(pa.scalar(0, pa.int32()), count)
    return pa.table([*columns, length, nobody, never, enqueued["detail"]], _ENTRIES)


def _left_of(entries: pa.Table, rows: pa.Table, destroyed: dict[str, int]) -> pa.Table:
    """Entries that no later `dequeued` or `destroyed` ended."""
    if destroyed:
        names = pa.array(list(destroyed), pa.string())
        ends = pa.array(list(destroyed.values()), pa.int64())
        entries = entries.filter(_after(entries, pc.index_in(entries["queue"], names), ends))
    dequeued = _of_kind(rows.select(["kind", "queue", "message_id", "position"]), Kind.DEQUEUED)
    if dequeued.num_rows:
        keys, dequeued_keys = _keys(entries, dequeued)
        last = pa.table({"key": dequeued_keys, "position": dequeued["position"]})
        last = last.group_by("key").aggregate([("position", "max")])
        rows_of_keys = pc.index_in(keys, last["key"].combine_chunks())
        entries = entries.filter(_after(entries, rows_of_keys, last["position_max"]))
    return entries


def _after(entries: pa.Table, row: Any, ends: Any) -> Any:
    """True where an entry is younger than the end that was found for it, or none was."""
    return pc.greater(entries["position"], pc.fill_null(pc.take(ends, row), 0))


def _holders(entries: pa.Table, rows: pa.Table) -> pa.Table:
    """Entries with who holds them and how often they came back."""
    moved = _of_kind(rows, Kind.ACQUIRED, Kind.RELEASED)
    if not moved.num_rows or not entries.num_rows:
        return entries
    keys, moved_keys = _keys(entries, moved)
    of_entry = pc.index_in(moved_keys, keys)
    since = pc.take(entries["position"], of_entry)
    moves = pa.table(
        {
            "entry": of_entry,
            "holder": moved["holder"],
            "delivery_count": moved["delivery_count"],
            "detail": moved["detail"],
        }
    ).filter(pc.fill_null(pc.greater(moved["position"], since), fill_value=False))
    last = moves.group_by("entry", use_threads=False).aggregate(
        [
            ("holder", "last", pc.ScalarAggregateOptions(skip_nulls=False)),
            ("delivery_count", "last"),
            ("detail", "last"),
        ]
    )
    row = pc.index_in(pa.array(range(entries.num_rows), pa.int32()), last["entry"].combine_chunks())
    holder = pc.if_else(pc.is_valid(row), pc.take(last["holder_last"], row), entries["acquired_by"])
    entries = _with(entries, "acquired_by", holder)
    for name in ("delivery_count", "detail"):
        newest = pc.take(last[f"{name}_last"], row)
        entries = _with(entries, name, pc.coalesce(newest, entries[name]))
    return entries


def _with(entries: pa.Table, name: str, column: Any) -> pa.Table:
    return entries.set_column(entries.schema.get_field_index(name), STATE.field(name), column)


def _keys(entries: pa.Table, events: pa.Table) -> tuple[Any, Any]:
    """Return (queue, message id) of both tables as one integer, the same for the same pair."""
    queues = _distinct(entries["queue"], events["queue"])
    bits = max(1, (len(queues) - 1).bit_length())
    both = [entries["message_id"], events["message_id"]]
    largest = max(pc.max(ids).as_py() or 0 for ids in both)
    if largest.bit_length() + bits > _KEY_BITS:
        ids = _distinct(*both)
        both = [pc.index_in(column, ids).cast(pa.int64()) for column in both]
    keys = [
        pc.bit_wise_or(
            pc.shift_left(column, pa.scalar(bits, pa.int64())),
            pc.index_in(table["queue"], queues).cast(pa.int64()),
        )
        for column, table in zip(both, (entries, events), strict=True)
    ]
    return keys[0].combine_chunks(), keys[1].combine_chunks()


def _distinct(*columns: pa.ChunkedArray) -> pa.Array:
    return pc.unique(pa.concat_arrays([pc.unique(column) for column in columns]))


def _fill(state: State, entries: pa.Table) -> None:
    """Pack the entries, by queue and in position order, into the state."""
    encoded = entries["queue"].dictionary_encode().combine_chunks()  # names may exceed 2 GiB
    names, by_queue = encoded.dictionary.to_pylist(), encoded.indices
    is_in_order = _are_in_order(by_queue, entries["position"])
    if not is_in_order:
        places = pa.table({"by_queue": by_queue, "position": entries["position"]})
        order = pc.sort_indices(places, [("by_queue", "ascending"), ("position", "ascending")])
        entries = entries.drop_columns("queue").combine_chunks()
    counts = pc.value_counts(by_queue)
    start = 0
    for index, count in sorted(zip(*(part.to_pylist() for part in counts.flatten()), strict=True)):
        queue = state.queues.get(names[index])
        if queue is None:
            message = f"{count} entries are on queue {names[index]!r}, which does not exist"
            raise CorruptData(message)
        for first in range(start, start + count, _PACKED_AT_ONCE):
            length = min(_PACKED_AT_ONCE, start + count - first)
            if is_in_order:
                part = entries.slice(first, length)  # no copy of them all, as of a single queue
            else:
                part = entries.take(order.slice(first, length))
            _pack(state, queue, part)
        start += count


def _are_in_order(by_queue: pa.Array, positions: pa.ChunkedArray) -> bool:
    """Tell whether entries lie together by queue, and there by position, as a single queue's do."""
    steps = pc.pairwise_diff(by_queue).slice(1)
    rises = pc.greater(pc.pairwise_diff(positions.combine_chunks()).slice(1), 0)
    is_next = pc.or_(pc.greater(steps, 0), pc.and_(pc.equal(steps, 0), rises))
    return pc.all(is_next).as_py() is not False


def _pack(state: State, queue: QueueState, entries: pa.Table) -> None:
    ends = entries["expires_at"]
    if ends.null_count:
        ends = pc.fill_null(ends.cast(pa.int64()), NEVER)
    numbers = [*map(entries.column, ("position", "at", "priority")), ends, entries["message_bytes"]]
    held = [entries[name] for name in ("acquired_by", "delivery_count", "detail")]
    is_held = held[0].null_count + held[2].null_count < 2 * len(entries) or pc.max(held[1]).as_py()
    holders = [*zip(*map(as_list, held), strict=True)] if is_held else []
    message_ids = as_integers(entries["message_id"])
    queue.entries.extend(message_ids, Columns._make((*map(as_integers, numbers), holders)))
    state.messages.extend(message_ids)
