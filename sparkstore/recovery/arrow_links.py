"""The part of the Arrow fold that is about links: few links one by one, deliveries by columns.

A delivery is remembered if its last `unsettled` is after its last `settled` and after the last
`detached` that closed its link (one with a detail, whatever it says). Its state is that of this
`unsettled`. A row of `state` is an `unsettled` before all. `attached` and `detached` go through the
oracle.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from sparkstore.core.fold import LinkState, State
from sparkstore.core.records import Kind
from sparkstore.errors import CorruptData
from sparkstore.tables.arrow_values import as_list

_COLUMNS = ["link", "tag", "position", "detail", "is_there"]
_KEY = ["link", "tag"]


def add_links(state: State, state_rows: pa.Table) -> None:
    """Put the links that `state` has into the state, without their deliveries."""
    rows = state_rows.filter(pc.equal(state_rows["part"], "link"))
    columns = (as_list(rows[name]) for name in ("exchange", "detail", "position", "at"))
    for link, detail, position, detached_at in zip(*columns, strict=True):
        state.links[link] = LinkState(detail, position, detached_at)


def add_deliveries(state: State, state_rows: pa.Table, rows: pa.Table) -> None:
    """Give the links, which are as `rows` left them, the deliveries that they remember.

    Raises:
        CorruptData: A delivery is of a link that does not exist.
    """
    base = state_rows.filter(pc.equal(state_rows["part"], "delivery"))
    changes = rows.filter(pc.is_in(rows["kind"], _columns_of(Kind.UNSETTLED, Kind.SETTLED)))
    if not base.num_rows and not changes.num_rows:
        return
    last = _last(base, changes)
    closed = rows.filter(
        pc.and_(pc.equal(rows["kind"], Kind.DETACHED.column), pc.is_valid(rows["detail"]))
    )
    ends = closed.select(["holder", "position"]).group_by("holder").aggregate([("position", "max")])
    row = pc.index_in(last["link"], ends["holder"].combine_chunks())
    end = pc.fill_null(pc.take(ends["position_max"], row), -1)
    last = last.filter(pc.and_(last["is_there"], pc.greater(last["position"], end)))
    columns = (as_list(last[name]) for name in ("link", "tag", "detail"))
    for link, tag, detail in zip(*columns, strict=True):
        known = state.links.get(link)
        if known is None:
            message = f"delivery {tag} is on link {link}, which does not exist: run reconcile"
            raise CorruptData(message)
        known.unsettled[bytes.fromhex(tag)] = detail


def _last(base: pa.Table, changes: pa.Table) -> pa.Table:
    """Return the last record of each delivery: `_COLUMNS`, in no particular order."""
    here = pa.repeat(pa.scalar(value=True), base.num_rows)
    before = pa.repeat(pa.scalar(0, pa.int64()), base.num_rows)
    stored = [base["exchange"], base["binding_key"], before, base["detail"], here]
    is_there = pc.equal(changes["kind"], Kind.UNSETTLED.column)
    of_delivery = [changes[name] for name in ("holder", "binding_key", "position", "detail")]
    changed = pa.table([*of_delivery, is_there], _COLUMNS)
    both = pa.concat_tables([pa.table(stored, _COLUMNS), changed])
    newest = both.select([*_KEY, "position"]).group_by(_KEY).aggregate([("position", "max")])
    on = [*_KEY, "position"]
    return both.join(newest.rename_columns(on), on, join_type="left semi")


def _columns_of(*kinds: Kind) -> pa.Array:
    return pa.array([kind.column for kind in kinds])
