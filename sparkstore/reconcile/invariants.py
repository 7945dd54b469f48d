"""Check the invariants of a root from outside: without a JVM, changing nothing.

Every check gives a result, good or bad, with evidence to act on; one that cannot be made because
the root cannot be read is bad. They read narrow columns of everything there is, so the time grows
with history; content is read only if asked for (`deep`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake.exceptions import DeltaError

from sparkstore.content.reader import ContentReader
from sparkstore.core.fold import State
from sparkstore.core.records import Kind
from sparkstore.errors import StoreError, Unavailable
from sparkstore.log.unreplayed_records import unreplayed
from sparkstore.reconcile import catalogue
from sparkstore.reconcile.catalogue import Invariant
from sparkstore.recovery.arrow_fold import fold_tables, rows_that_count
from sparkstore.recovery.recovery import RecoveredRoot, read_state, recover
from sparkstore.tables.delta_files import newest_version
from sparkstore.tables.healing import check as first_broken
from sparkstore.tables.healing import read_marks
from sparkstore.tables.parquet_check import lost_files
from sparkstore.tables.root import TABLES, Root
from sparkstore.tables.schema import FOLD_COLUMNS, ROW
from sparkstore.tables.snapshot import columns_of, read_files, snapshot

_NARROW = ["position", "epoch", "kind", "message_id", "member", "request"]
_MAX_EVIDENCE = 5


@dataclass(frozen=True, slots=True)
class InvariantResult:
    """The result of one check.

    Attributes:
        name: The name of the invariant, in the catalogue.
        holds: True if the invariant holds.
        evidence: What was counted; or what is wrong and where, and what to do.
    """

    name: str
    holds: bool
    evidence: str


class _Broken(Exception):
    """The failure of an invariant; its text is the evidence.

    Attributes:
        advice: What to do, if not what the invariant says.
    """

    def __init__(self, evidence: str, advice: str) -> None:
        super().__init__(evidence)
        self.advice = advice


class _Facts:
    """Facts that several checks need, read once."""

    def __init__(self, root: Root) -> None:
        self.root = root

    @cached_property
    def recovered(self) -> RecoveredRoot:
        return recover(self.root)

    @property
    def state(self) -> State:
        return self.recovered.state

    @cached_property
    def history(self) -> pa.Table:
        """Narrow rows of history, by position."""
        rows = read_files(snapshot(self.root.history), columns_of(ROW, _NARROW))
        return rows.sort_by("position")

    @cached_property
    def journal(self) -> pa.Table:
        """Narrow rows of the journal that count, by position."""
        rows = read_files(snapshot(self.root.journal), columns_of(ROW, _NARROW))
        openings = self.history.filter(pc.equal(self.history["kind"], Kind.OPENED.column))
        from_journal = pa.array([False] * openings.num_rows + [True] * rows.num_rows)
        both = pa.concat_tables([openings, rows]).append_column("from_journal", from_journal)
        counting = rows_that_count(both)
        return counting.filter(counting["from_journal"]).select(_NARROW).sort_by("position")

    @cached_property
    def records(self) -> pa.Table:
        """History, then the journal after its end."""
        end = pc.max(self.history["position"]).as_py() or 0
        return pa.concat_tables(
            [self.history, self.journal.filter(pc.greater(self.journal["position"], end))]
        )


def check(root: Root, *, deep: bool = False) -> list[InvariantResult]:
    """Check each invariant in the order of `CHECKS`; never raises for a broken root.

    Args:
        root: A root that is not being written to; a serving one may show a commit half done.
        deep: Also read the content of every message that is on a queue.
    """
    facts = _Facts(root)
    return [_result(of, test, facts) for of, test in CHECKS.items() if deep or not of.is_deep]


def _result(of: Invariant, test: Callable[[_Facts], str], facts: _Facts) -> InvariantResult:
    try:
        return InvariantResult(of.name, holds=True, evidence=test(facts))
    except _Broken as reason:
        evidence = f"{reason}; {reason.advice or of.advice}"
    except (StoreError, DeltaError, OSError, pa.ArrowException) as reason:
        evidence = str(reason).partition("\n")[0]
    return InvariantResult(of.name, holds=False, evidence=evidence)


def _tables_are_whole(facts: _Facts) -> str:
    marks = read_marks(facts.root).versions
    broken = {table: first_broken(facts.root, table) for table in TABLES}
    was_durable = any(first and first <= marks.get(table, -1) for table, first in broken.items())
    _none(
        [f"{table} is broken from version {first} on" for table, first in broken.items() if first],
        catalogue.GONE if was_durable else "start the store: it heals them",
    )
    lost = {table: lost_files(facts.root.table(table)) for table in TABLES}
    _none(
        [why for files in lost.values() for why in files.values()],
        "; ".join(catalogue.LOST_FILE[table] for table, files in lost.items() if files),
    )
    newest = (f"{table} {newest_version(facts.root.table(table))}" for table in TABLES)
    return f"versions: {', '.join(newest)}"


def _log_can_be_replayed(facts: _Facts) -> str:
    """Records that wait for the next start break nothing; a log that it would refuse does."""
    try:
        records = unreplayed(facts.root)
    except Unavailable as reason:
        return f"not checked: {reason}"
    return "nothing waits for a start" if records is None else str(records)


def _marks_are_not_ahead(facts: _Facts) -> str:
    marked = read_marks(facts.root).versions
    _none(
        f"{table} is marked durable at version {version}, but ends before it"
        for table, version in marked.items()
        if version > newest_version(facts.root.table(table))
    )
    return f"marks: {dict(marked)}"


def _positions_are_gapless(facts: _Facts) -> str:
    first = facts.recovered.history_start
    for layer, rows in (("history", facts.history), ("journal", facts.journal)):
        twice = rows.num_rows - pc.count_distinct(rows["position"]).as_py()
        _none([f"{layer} has {twice} positions more than once"] if twice else [])
    positions = facts.records["position"]
    positions = positions.filter(pc.greater_equal(positions, first))
    expected = pa.array(range(first, first + len(positions)), pa.int64())
    place = pc.index(pc.equal(positions, expected), False).as_py()
    is_old = first + place <= facts.recovered.history_position
    _none(
        [f"position {first + place} is missing"] if place >= 0 else [],
        "" if is_old else catalogue.BY_A_START,
    )
    return f"positions {first} to {first + len(positions) - 1}, each once"


def _epochs_rise(facts: _Facts) -> str:
    rows = facts.records
    opened = rows.filter(pc.equal(rows["kind"], Kind.OPENED.column))["epoch"].to_pylist()
    _none(
        f"epoch {later} was opened after epoch {earlier}"
        for earlier, later in pairwise(opened)
        if later <= earlier
    )
    epochs = rows["epoch"].combine_chunks()
    falls = pc.greater(epochs[:-1], epochs[1:]) if len(epochs) else pa.array([], pa.bool_())
    place = pc.index(falls, True).as_py()
    _none([f"the epoch falls after position {rows['position'][place]}"] if place >= 0 else [])
    return f"{len(opened)} epochs opened, the newest is {facts.state.epoch}"


def _requests_rise(facts: _Facts) -> str:
    rows = facts.records
    asked = rows.filter(rows["request"].is_valid()).sort_by(
        [("member", "ascending"), ("position", "ascending")]
    )
    members, requests = (asked[name].combine_chunks() for name in ("member", "request"))
    is_same = pc.equal(members[:-1], members[1:])
    falls = pc.and_(is_same, pc.greater_equal(requests[:-1], requests[1:]))
    place = pc.index(falls, True).as_py()
    _none(
        [f"{members[place]} asked {requests[place + 1]} after {requests[place]}"]
        if place >= 0
        else []
    )
    return f"{asked.num_rows} requests of {len(facts.state.members)} members"


def _message_ids_were_reserved(facts: _Facts) -> str:
    rows = facts.records
    used = rows.filter(pc.not_equal(rows["kind"], Kind.IDS_RESERVED.column))["message_id"]
    largest = max(pc.max(used).as_py() or 0, max(facts.state.messages, default=0))
    next_id = facts.state.next_message_id
    _none(
        [f"message id {largest} is in use, {next_id} is to be next"] if largest >= next_id else []
    )
    return f"largest id in use {largest}, next {next_id}"


def _entries_have_queues(facts: _Facts) -> str:
    rows = read_state(facts.root)
    is_queue = pc.and_(
        pc.equal(rows["part"], "wiring"),
        pc.and_(rows["queue"].is_valid(), rows["exchange"].is_null()),
    )
    queues = rows.filter(is_queue)["queue"].combine_chunks()
    entries = rows.filter(pc.equal(rows["part"], "entry"))
    lost = entries.filter(pc.invert(pc.is_in(entries["queue"], queues)))
    _none(f"state has entries on {name!r}, no such queue" for name in _some(lost["queue"]))
    pairs = entries.select(["queue", "message_id"]).group_by(["queue", "message_id"])
    twice = entries.num_rows - pairs.aggregate([]).num_rows
    _none([f"state has {twice} entries more than once"] if twice else [])
    count = sum(len(queue.entries) for queue in facts.state.queues.values())
    return f"{count} entries on {len(facts.state.queues)} queues"


def _bindings_join_what_is_there(facts: _Facts) -> str:
    state = facts.state
    _none(
        f"binding {tuple(key)} names a queue or an exchange that is not there"
        for key in state.bindings
        if key.queue not in state.queues or key.exchange not in state.exchanges
    )
    return f"{len(state.bindings)} bindings"


def _deliveries_have_links(facts: _Facts) -> str:
    rows = read_state(facts.root, ("link", "delivery"))
    links = rows.filter(pc.equal(rows["part"], "link"))["exchange"].combine_chunks()
    deliveries = rows.filter(pc.equal(rows["part"], "delivery"))
    lost = deliveries.filter(pc.invert(pc.is_in(deliveries["exchange"], links)))
    _none(f"state has deliveries of link {link}, no such link" for link in _some(lost["exchange"]))
    count = sum(len(link.unsettled) for link in facts.state.links.values())
    return f"{count} deliveries of {len(facts.state.links)} links"


def _state_is_the_fold_of_history(facts: _Facts) -> str:
    position = facts.recovered.state_position
    if facts.recovered.history_start > 1 or facts.recovered.history_position < position:
        return "not checked: history does not hold every record up to the state"
    files = (file for file in snapshot(facts.root.history) if file.positions[0] <= position)
    where = ds.field("position") <= position
    rows = read_files(files, columns_of(ROW, FOLD_COLUMNS), where).sort_by("position")
    state_rows = read_state(facts.root)
    expected = fold_tables(state_rows.slice(0, 0), rows)
    actual = fold_tables(state_rows, rows.slice(0, 0))
    _none(
        f"{name} differ at position {position}"
        for name in State.__dataclass_fields__
        if getattr(actual, name) != getattr(expected, name)
    )
    return f"state at position {position} is the fold of history"


def _content_is_there(facts: _Facts) -> str:
    reader = ContentReader(facts.root)
    wrong: list[str] = []
    for message_id in sorted(facts.state.messages):
        try:
            reader.read(message_id)
        except StoreError as reason:
            wrong.append(str(reason))
    _none(wrong)
    return f"{len(facts.state.messages)} messages read"


def _some(column: pa.ChunkedArray) -> Collection[str]:
    names: list[str] = pc.unique(column).to_pylist()
    return names


def _none(wrong: Iterable[str], advice: str = "") -> None:
    """Raise if something is wrong; the first few are the evidence."""
    texts = list(wrong)
    if texts:
        more = [f"and {len(texts) - _MAX_EVIDENCE} more"] if len(texts) > _MAX_EVIDENCE else []
        raise _Broken("; ".join([*texts[:_MAX_EVIDENCE], *more]), advice)


CHECKS: Mapping[Invariant, Callable[[_Facts], str]] = {
    catalogue.TABLES_ARE_WHOLE: _tables_are_whole,
    catalogue.LOG_CAN_BE_REPLAYED: _log_can_be_replayed,
    catalogue.MARKS_ARE_NOT_AHEAD: _marks_are_not_ahead,
    catalogue.POSITIONS_ARE_GAPLESS: _positions_are_gapless,
    catalogue.EPOCHS_RISE: _epochs_rise,
    catalogue.REQUESTS_RISE: _requests_rise,
    catalogue.MESSAGE_IDS_WERE_RESERVED: _message_ids_were_reserved,
    catalogue.STATE_IS_THE_FOLD_OF_HISTORY: _state_is_the_fold_of_history,
    catalogue.ENTRIES_HAVE_QUEUES: _entries_have_queues,
    catalogue.BINDINGS_JOIN_WHAT_IS_THERE: _bindings_join_what_is_there,
    catalogue.DELIVERIES_HAVE_LINKS: _deliveries_have_links,
    catalogue.CONTENT_IS_THERE: _content_is_there,
}
"""How each invariant is computed that `verify` knows; deep ones only when asked for."""
