"""Records about links as members send them: made into calls of the state machine. Pure."""

from __future__ import annotations

import json

from broker_shim.errors import InvalidRequest
from broker_shim.service.decisions.arrivals import object_of
from sparkstore.core.link_records import LinkKey, link_key
from sparkstore.core.records import Kind, Record
from sparkstore.core.state_machine import transactions
from sparkstore.core.state_machine.state_machine import StoreStateMachine
from sparkstore.core.state_machine.transaction import RecordStep, Transaction


def holder_of(machine: StoreStateMachine, prefix: str, record: Record) -> str:
    """Who a holder is among all members: one of that member, so its name goes before.

    But a link that is kept with its deliveries is one and the same wherever it comes back. To the
    member both are one holder: what it acquired before the link was kept, or while it was, it still
    has as what it was then.
    """
    holder = record.holder or ""
    now = _held_by(machine, record)
    if now == prefix + holder or (now == holder and holder.startswith("[")):
        return now
    return holder if machine.is_resumable(holder) else prefix + holder


def _held_by(machine: StoreStateMachine, record: Record) -> str | None:
    """Who holds the entry that a record is about, as an open transaction that claims it has it."""
    place = (record.queue or "", record.message_id or 0)
    if (claimant := machine.claims.get(place)) is not None:
        return claimant.claims[place]
    queue = machine.state.queues.get(place[0])
    entry = None if queue is None else queue.entries.get(place[1])
    return None if entry is None else entry.acquired_by


def link_steps(machine: StoreStateMachine, record: Record) -> list[RecordStep]:
    """What a record about a link means by itself; see `LinkCalls` for what it is refused with."""
    key = _key(record)
    if record.kind is Kind.ATTACHED:
        return machine.attach(key, object_of(record.detail or ""))
    if record.kind is Kind.DETACHED:
        is_closed = record.detail is not None and object_of(record.detail).get("closed") is True
        return machine.detach(key, closed=is_closed)
    if record.kind is Kind.UNSETTLED:
        state = None if record.detail is None else object_of(record.detail)
        return machine.unsettled(key, _tag(record.binding_key), state)
    return machine.settle(key, _tags(record))


def unsettled_later(machine: StoreStateMachine, transaction: Transaction, record: Record) -> None:
    """The state of a delivery, in a transaction."""
    state = None if record.detail is None else object_of(record.detail)
    tag = _tag(record.binding_key)
    transactions.unsettled(machine, transaction, _key(record), tag, state)


def settle_later(machine: StoreStateMachine, transaction: Transaction, record: Record) -> None:
    """Deliveries are forgotten, in a transaction."""
    transactions.settle(machine, transaction, _key(record), _tags(record))


def _key(record: Record) -> LinkKey:
    try:
        return link_key(record.holder or "")
    except (ValueError, RecursionError) as reason:
        message = f"the holder of a record about a link is [container, name, role]: {reason}"
        raise InvalidRequest(message) from reason


def _tag(text: object) -> bytes:
    try:
        if isinstance(text, str):
            return bytes.fromhex(text)
    except ValueError:
        pass
    raise InvalidRequest("a delivery tag is text in hexadecimal")


def _tags(record: Record) -> list[bytes]:
    try:
        told = json.loads(record.detail or "")
    except (ValueError, RecursionError) as reason:
        message = f"the tags of a settled record are a JSON array: {reason}"
        raise InvalidRequest(message) from reason
    if not isinstance(told, list):
        raise InvalidRequest("the tags of a settled record are a JSON array")
    return [_tag(text) for text in told]
