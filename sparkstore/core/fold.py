"""The meaning of records: `apply(state, position, run)` changes the state. Pure: the oracle.

A live store's own state is this fold of the records it wrote. Recovery (`arrow_fold`) and the
jobs and views (`compact`, SQL) have fast forms of it, and a property test holds the three equal.
`apply` trusts its records: refusing a call is the business of whoever writes them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sparkstore.core.entries import LEAST_CHUNK, NEVER, Columns, Entries, Entry
from sparkstore.core.message_counts import MessageCounts
from sparkstore.core.packed_integers import Column
from sparkstore.core.records import ExchangeBindingKey, Kind, Record, RecordRun, Run

__all__ = [
    "APPLY",
    "WINDOW",
    "Entries",
    "Entry",
    "LinkState",
    "MemberState",
    "QueueState",
    "State",
    "apply",
    "decided",
]

WINDOW = 16_384
"""How many of a member's last requests the state can say of that they were refused: a member may
not have more of them unanswered (the store protocol's `max_waiting_requests`)."""


@dataclass(slots=True)
class QueueState:
    """State of one queue, as the fold has it.

    Attributes:
        detail: The queue's definition (JSON).
        position: Position of the record that gave it this definition (`created`, `altered`).
        entries: What is on the queue, by message id, in the order of positions.
    """

    detail: str
    position: int
    entries: Entries = field(default_factory=Entries)


@dataclass(slots=True)
class MemberState:
    """The decided requests of one broker instance.

    Attributes:
        last_request: The highest request number that is decided; each lower one is decided, too.
        refusals: Why each refused one of the last `WINDOW` requests was (JSON), by its number, in
            rising order.
    """

    last_request: int = 0
    refusals: dict[int, str] = field(default_factory=dict)


@dataclass(slots=True)
class LinkState:
    """A link that outlives its connection, or is attached (`link_records`).

    Attributes:
        detail: The link's termini (JSON).
        position: Position of the last record `attached` about it.
        detached_at: When it was detached, UTC µs; None while it is attached.
        unsettled: State (JSON, None: none yet) of the deliveries that it remembers, by tag.
    """

    detail: str
    position: int
    detached_at: int | None = None
    unsettled: dict[bytes, str | None] = field(default_factory=dict)


@dataclass(slots=True)
class State:
    """The fold of all records up to `position`. It has no lock: one thread at a time uses it.

    Attributes:
        position: Position of the last record applied, 0 before the first.
        epoch: Writer epoch of the newest record `opened`.
        next_message_id: Least message id that was never reserved.
        queues: Definition and entries of each queue, by the queue's name.
        exchanges: Definition (JSON) of each exchange, by its name.
        bindings: Arguments (JSON) of each binding, by its key.
        configured: Objects of a broker's configuration (JSON) by category and key.
        members: What was decided for each broker instance, by the member's name.
        staged: Messages whose header came with a piece of their content and that were not enqueued
            since; the position of the last such piece.
        messages: On how many queues each message is; one on none is not here.
        links: Each link, by the text that names it (`link_records.link_text`).
        prepared: What each branch in doubt will do (JSON, `branches`), by the text of its xid.
    """

    position: int = 0
    epoch: int = 0
    next_message_id: int = 1
    queues: dict[str, QueueState] = field(default_factory=dict)
    exchanges: dict[str, str] = field(default_factory=dict)
    bindings: dict[ExchangeBindingKey, str] = field(default_factory=dict)
    configured: dict[tuple[str, str], str] = field(default_factory=dict)
    members: dict[str, MemberState] = field(default_factory=dict)
    staged: dict[int, int] = field(default_factory=dict)
    messages: MessageCounts = field(default_factory=MessageCounts)
    links: dict[str, LinkState] = field(default_factory=dict)
    prepared: dict[str, str] = field(default_factory=dict)


def apply(state: State, position: int, run: Run, epoch: int = 0) -> None:
    """Fold a run of records into the state, in place; most are of one record.

    They are taken as they are: what would refuse one has done so before it was written.

    Args:
        state: Folded up to the position before.
        position: Position of the first record; 0: it is true in memory only.
        run: The records, which mean what they mean one by one.
        epoch: The epoch of their rows, which only `opened` uses.
    """
    record = run.record
    APPLY[record.kind](state, position, run, epoch)
    last = run.rows - 1
    if record.request is not None and record.member is not None:
        decided(state, record.member, record.request + last)
    state.position = position + last


def decided(state: State, member: str, request: int) -> None:
    """Mark a member's request as decided, and each before it.

    One that was decided already changes nothing.

    Public, because a store that takes many requests at once need say so only of the last.
    """
    known = state.members.get(member)
    if known is None:
        known = state.members[member] = MemberState()
    known.last_request = max(known.last_request, request)
    refusals = known.refusals
    while refusals and (oldest := next(iter(refusals))) <= known.last_request - WINDOW:
        del refusals[oldest]


def _opened(state: State, _position: int, _record: Record, epoch: int) -> None:
    state.epoch = epoch


def _ids_reserved(state: State, _position: int, record: Record, _epoch: int) -> None:
    assert record.message_id is not None
    state.next_message_id = record.message_id


def _created(state: State, position: int, record: Record, _epoch: int) -> None:
    if record.queue is not None:
        state.queues[record.queue] = QueueState(record.detail or "{}", position)
    else:
        assert record.exchange is not None
        state.exchanges[record.exchange] = record.detail or "{}"


def _altered(state: State, position: int, record: Record, _epoch: int) -> None:
    assert record.queue is not None
    queue = state.queues[record.queue]
    queue.detail, queue.position = record.detail or "{}", position


def _destroyed(state: State, _position: int, record: Record, _epoch: int) -> None:
    if record.queue is not None:
        for message_id in state.queues.pop(record.queue).entries:
            state.messages.remove(message_id)
    else:
        assert record.exchange is not None
        del state.exchanges[record.exchange]


def _bound(state: State, _position: int, record: Record, _epoch: int) -> None:
    state.bindings[_binding_key(record)] = record.detail or "{}"


def _unbound(state: State, _position: int, record: Record, _epoch: int) -> None:
    del state.bindings[_binding_key(record)]


def _configured(state: State, _position: int, record: Record, _epoch: int) -> None:
    state.configured[_configured_key(record)] = record.detail or "{}"


def _unconfigured(state: State, _position: int, record: Record, _epoch: int) -> None:
    del state.configured[_configured_key(record)]


def _prepared(state: State, _position: int, record: Record, _epoch: int) -> None:
    """Note a branch that is in doubt; records of their own say what it holds and brought."""
    assert record.binding_key is not None
    state.prepared[record.binding_key] = record.detail or "{}"


def _branch_decided(state: State, _position: int, record: Record, _epoch: int) -> None:
    assert record.binding_key is not None
    del state.prepared[record.binding_key]


def _refused(state: State, _position: int, record: Record, _epoch: int) -> None:
    assert record.member is not None
    assert record.request is not None
    member = state.members.setdefault(record.member, MemberState())
    member.refusals[record.request] = record.detail or "{}"


def _content(state: State, position: int, record: Record, _epoch: int) -> None:
    """Content changes nothing until a record enqueues it, unless it brings the header."""
    if record.message is not None and record.message.protocol is not None:
        assert record.message_id is not None
        state.staged[record.message_id] = position


def _staging_aborted(state: State, _position: int, record: Record, _epoch: int) -> None:
    assert record.message_id is not None
    del state.staged[record.message_id]


def _enqueued(state: State, position: int, run: Run, _epoch: int = 0) -> None:
    record, message_ids = run.record, run.message_ids
    assert record.queue is not None
    state.messages.extend(message_ids)
    for message_id in message_ids if state.staged else ():
        state.staged.pop(message_id, None)
    entries = state.queues[record.queue].entries
    if run.rows < LEAST_CHUNK:
        for index, header in enumerate(run.headers):
            assert header is not None
            size, rest = header.header_bytes + header.body_bytes, (None, 0, record.detail)
            about = record.at, header.priority, header.expires_at, size
            entries.add(message_ids[index], Entry(position + index, *about, *rest))
    else:
        assert isinstance(run, RecordRun)
        entries.extend(message_ids, _columns(position, run))


def _columns(position: int, run: RecordRun) -> Columns:
    """The columns of entries that a long run puts on a queue."""
    rows, record = run.rows, run.record
    headers = run.messages
    about = (
        [header.priority for header in headers],
        [NEVER if header.expires_at is None else header.expires_at for header in headers],
        [header.header_bytes + header.body_bytes for header in headers],
    )
    alike = [Column(values[0], None, rows) for values in about] if len(headers) == 1 else about
    held = () if record.detail is None else [(None, 0, record.detail)] * rows
    ats = Column(record.at, None, rows)
    return Columns._make((range(position, position + rows), ats, *alike, held))


def _dequeued(state: State, _position: int, run: Run, _epoch: int) -> None:
    queue, message_ids = run.record.queue, run.message_ids
    assert queue is not None
    state.queues[queue].entries.remove(message_ids)
    state.messages.remove_all(message_ids)


def _acquired(state: State, _position: int, run: Run, _epoch: int) -> None:
    record = run.record
    assert record.queue is not None
    state.queues[record.queue].entries.hold(run.message_ids, record.holder)


def _released(state: State, _position: int, run: Run, _epoch: int) -> None:
    record = run.record
    assert record.queue is not None
    entries = state.queues[record.queue].entries
    for message_id in run.message_ids:
        entries.give_back(message_id, record.delivery_count or 0, record.detail)


def _attached(state: State, position: int, record: Record, _epoch: int) -> None:
    assert record.holder is not None
    link = state.links.setdefault(record.holder, LinkState("{}", position))
    link.detail, link.position, link.detached_at = record.detail or "{}", position, None


def _detached(state: State, _position: int, record: Record, _epoch: int) -> None:
    assert record.holder is not None
    if record.detail is None:
        state.links[record.holder].detached_at = record.at
    else:
        del state.links[record.holder]


def _unsettled(state: State, _position: int, record: Record, _epoch: int) -> None:
    link, tag = _delivery(state, record)
    link.unsettled[tag] = record.detail


def _settled(state: State, _position: int, record: Record, _epoch: int) -> None:
    link, tag = _delivery(state, record)
    link.unsettled.pop(tag, None)  # one transaction may settle it twice


def _delivery(state: State, record: Record) -> tuple[LinkState, bytes]:
    """The link and the tag that a record is about."""
    assert record.holder is not None
    assert record.binding_key is not None
    return state.links[record.holder], bytes.fromhex(record.binding_key)


def _binding_key(record: Record) -> ExchangeBindingKey:
    assert record.exchange is not None
    assert record.queue is not None
    assert record.binding_key is not None
    return ExchangeBindingKey(record.exchange, record.queue, record.binding_key)


def _configured_key(record: Record) -> tuple[str, str]:
    assert record.exchange is not None
    assert record.binding_key is not None
    return record.exchange, record.binding_key


APPLY: dict[Kind, Callable[[State, int, Any, int], None]] = {
    Kind.OPENED: _opened,
    Kind.IDS_RESERVED: _ids_reserved,
    Kind.CREATED: _created,
    Kind.DESTROYED: _destroyed,
    Kind.BOUND: _bound,
    Kind.UNBOUND: _unbound,
    Kind.CONTENT: _content,
    Kind.ENQUEUED: _enqueued,
    Kind.DEQUEUED: _dequeued,
    Kind.ACQUIRED: _acquired,
    Kind.RELEASED: _released,
    Kind.CONFIGURED: _configured,
    Kind.UNCONFIGURED: _unconfigured,
    Kind.REFUSED: _refused,
    Kind.STAGING_ABORTED: _staging_aborted,
    Kind.ATTACHED: _attached,
    Kind.DETACHED: _detached,
    Kind.UNSETTLED: _unsettled,
    Kind.SETTLED: _settled,
    Kind.ALTERED: _altered,
    Kind.PREPARED: _prepared,
    Kind.COMMITTED: _branch_decided,
    Kind.ROLLED_BACK: _branch_decided,
}
