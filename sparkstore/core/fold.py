"""The meaning of records: `apply(state, position, record)` changes the state. Pure: the oracle.

A live store's own state is this fold of the records it wrote. Recovery (`arrow_fold`) and the
jobs and views (`compact`, SQL) have fast forms of it, and a property test holds the three equal.
`apply` trusts its records: refusing a call is the business of whoever writes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sparkstore.core.entries import Entries, Entry
from sparkstore.core.message_counts import MessageCounts
from sparkstore.core.records import ExchangeBindingKey, Kind, Record

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
    "apply_alike",
    "decided",
    "enqueued",
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


def apply(state: State, position: int, record: Record, epoch: int = 0) -> None:
    """Fold one record into the state, in place; `epoch` is its row's, which only `opened` uses.

    A record is taken as it is: what would refuse it has done so before it was written.
    """
    APPLY[record.kind](state, position, record, epoch)
    if record.request is not None and record.member is not None:
        decided(state, record.member, record.request)
    state.position = position


def apply_alike(state: State, records: Sequence[Record]) -> bool:
    """Fold records that follow each other, as `apply` does each; for what a store does most.

    Args:
        state: Folded up to the position before theirs.
        records: At least one.

    Returns:
        False if nothing was done: they are not all messages that were put on one queue, acquired
        there or taken off it, all by requests of one member, in their order, or none of them.
    """
    first, last = records[0], records[-1]
    kind, queue, member = first.kind, first.queue, first.member
    fold = _ALIKE.get(kind)
    if fold is None or queue is None:
        return False
    is_asked = first.request is not None
    for record in records:
        if record.kind is not kind or record.queue != queue or record.member != member:
            return False
        if (record.request is not None) is not is_asked:
            return False
    fold(state, state.queues[queue].entries, records)
    if member is not None and last.request is not None:
        decided(state, member, last.request)
    state.position += len(records)
    return True


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


def enqueued(state: State, position: int, record: Record, _epoch: int = 0) -> None:
    """Apply an `enqueued` record: public, because a store does nothing more often."""
    message_id, header = record.message_id, record.message
    assert record.queue is not None
    assert message_id is not None
    assert header is not None
    state.messages.add(message_id)
    if state.staged:
        state.staged.pop(message_id, None)
    message_bytes = header.header_bytes + header.body_bytes
    state.queues[record.queue].entries.add(
        message_id,
        Entry(
            position,
            record.at,
            header.priority,
            header.expires_at,
            message_bytes,
            detail=record.detail,
        ),
    )


def _enqueued_alike(state: State, entries: Entries, records: Sequence[Record]) -> None:
    message_ids = [record.message_id or 0 for record in records]
    state.messages.extend(message_ids)
    for message_id in message_ids if state.staged else ():
        state.staged.pop(message_id, None)
    add = entries.add
    for position, record in enumerate(records, state.position + 1):
        header = record.message
        assert header is not None
        message_bytes = header.header_bytes + header.body_bytes
        sent, lives_until = (record.at, header.priority), header.expires_at
        entry = Entry(position, *sent, lives_until, message_bytes, None, 0, record.detail)
        add(record.message_id or 0, entry)


def _dequeued_alike(state: State, entries: Entries, records: Sequence[Record]) -> None:
    leave, uncount = entries.remove, state.messages.remove
    for record in records:
        leave(record.message_id or 0)
        uncount(record.message_id or 0)


def _acquired_alike(_state: State, entries: Entries, records: Sequence[Record]) -> None:
    hold = entries.hold
    for record in records:
        hold(record.message_id or 0, record.holder)


def _dequeued(state: State, _position: int, record: Record, _epoch: int) -> None:
    message_id = record.message_id
    assert record.queue is not None
    assert message_id is not None
    state.queues[record.queue].entries.remove(message_id)
    state.messages.remove(message_id)


def _acquired(state: State, _position: int, record: Record, _epoch: int) -> None:
    assert record.queue is not None
    assert record.message_id is not None
    state.queues[record.queue].entries.hold(record.message_id, record.holder)


def _released(state: State, _position: int, record: Record, _epoch: int) -> None:
    assert record.queue is not None
    assert record.message_id is not None
    entries = state.queues[record.queue].entries
    entries.give_back(record.message_id, record.delivery_count or 0, record.detail)


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


APPLY = {
    Kind.OPENED: _opened,
    Kind.IDS_RESERVED: _ids_reserved,
    Kind.CREATED: _created,
    Kind.DESTROYED: _destroyed,
    Kind.BOUND: _bound,
    Kind.UNBOUND: _unbound,
    Kind.CONTENT: _content,
    Kind.ENQUEUED: enqueued,
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
_ALIKE = {
    Kind.ENQUEUED: _enqueued_alike,
    Kind.ACQUIRED: _acquired_alike,
    Kind.DEQUEUED: _dequeued_alike,
}
