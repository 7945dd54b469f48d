"""Records as a member sends them, and what the service tells of those there are. Pure.

What is sent is made of checked arguments, and the service sets its time: each function raises
InvalidRequest if an argument of the call cannot be.
"""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from broker_shim.errors import InvalidRequest
from broker_shim.store.interface import Exchange, ExchangeBindingKey, Queue, Recovered
from sparkstore.core import link_records
from sparkstore.core.annotations import Annotations, as_detail
from sparkstore.core.entries import NEVER, Columns, Entries
from sparkstore.core.entry_chunk import Held
from sparkstore.core.link_records import LinkKey, link_key
from sparkstore.core.records import Kind, Record
from sparkstore.core.state_machine import arguments as check
from sparkstore.core.state_machine import definitions
from sparkstore.core.state_machine.call_values import (
    AcquireCall,
    AlterCall,
    AttachCall,
    BindCall,
    ConfigureCall,
    CreateCall,
    DequeueCall,
    DestroyCall,
    DetachCall,
    EnqueueCall,
    ReleaseCall,
    SettleCall,
    StoreCall,
    StoredMessage,
    StoredRun,
    UnbindCall,
    UnsettledCall,
)
from sparkstore.core.state_machine.definitions import exchange_of, queue_of
from sparkstore.core.state_machine.link_state_machine import text_of


def record_of(call: StoreCall) -> Record:
    """Make the record that a call means, of a run without the id; of new messages there is none."""
    return _RECORDS[type(call)](**call.by_name())


def created(wiring: Queue | Exchange) -> Record:
    """Make the record `created` of a queue or an exchange."""
    return _definition(Kind.CREATED, wiring, definitions.detail_of(wiring))


def altered(queue: Queue) -> Record:
    """Make the record `altered` of a queue with other arguments."""
    check.check_queue_definition(queue)
    return _definition(Kind.ALTERED, queue, definitions.detail_of(queue))


def destroyed(wiring: Queue | Exchange) -> Record:
    """Make the record `destroyed` of a queue or an exchange."""
    check.check_definition(wiring)
    return _definition(Kind.DESTROYED, wiring, None)


def bound(key: ExchangeBindingKey, arguments: Mapping[str, Any]) -> Record:
    """Make the record `bound` of a binding."""
    check.check_binding_key(key)
    check.check_arguments(arguments)
    detail = definitions.as_json({"arguments": dict(arguments)})
    return _binding(Kind.BOUND, key, detail)


def unbound(key: ExchangeBindingKey) -> Record:
    """Make the record `unbound` of a binding that is removed."""
    check.check_binding_key(key)
    return _binding(Kind.UNBOUND, key, None)


def configured(category: str, key: str, detail: Mapping[str, Any] | None) -> Record:
    """`configured`, or `unconfigured` without a detail."""
    check.check_name(category, "category")
    check.check_name(key, "key")
    kind = Kind.UNCONFIGURED if detail is None else Kind.CONFIGURED
    text = None if detail is None else definitions.as_json(detail)
    return Record(kind, 0, exchange=category, binding_key=key, detail=text)


def dequeued(
    message_ids: Sequence[int],  # noqa: ARG001  # each gets a record of its own
    queue: str,
    holder: str | None,
    outcome: Mapping[str, Any] | None,
) -> Record:
    """Make the record `dequeued` of messages that leave their queue, without an id."""
    check.check_taken(0, queue, holder)
    detail = None if outcome is None else definitions.as_json(outcome)
    return Record(Kind.DEQUEUED, 0, queue, None, holder, detail=detail)


def acquired(message_ids: Sequence[int], queue: str, holder: str) -> Record:  # noqa: ARG001
    """Make the record `acquired` of messages that a holder asks for, without an id."""
    check.check_entry(0, queue, holder)
    return Record(Kind.ACQUIRED, 0, queue, None, holder)


def released(
    message_ids: Sequence[int],  # noqa: ARG001  # each gets a record of its own
    queue: str,
    holder: str,
    delivery_failed: bool,  # noqa: FBT001  # a field of the call
    annotations: Annotations | None,
) -> Record:
    """Make the record `released` of messages that are available again, without an id."""
    check.check_entry(0, queue, holder)
    check.check_switch("delivery_failed", delivery_failed)
    detail = None if annotations is None else as_detail(annotations)
    failed = int(delivery_failed)
    return Record(Kind.RELEASED, 0, queue, None, holder, failed, detail=detail)


def enqueued(
    message: StoredMessage | StoredRun,  # noqa: ARG001  # each gets a record of its own
    queue: str,
    annotations: Annotations | None,
    delivery_count: int,
) -> Record:
    """Make the record `enqueued` of messages that the service has, without id and header.

    The service alone gives messages failed deliveries that they had elsewhere.
    """
    if delivery_count:
        raise InvalidRequest("a member puts no message with failed deliveries on a queue")
    check.check_queue(queue)
    detail = None if annotations is None else as_detail(annotations)
    return Record(Kind.ENQUEUED, 0, queue, detail=detail)


def attached(key: LinkKey, detail: Mapping[str, Any]) -> Record:
    """Make the record `attached` of a link and its termini."""
    return link_records.attached(0, text_of(key), definitions.as_json(detail))


def detached(key: LinkKey, *, closed: bool) -> Record:
    """Make the record `detached` of a link, which may be closed."""
    check.check_switch("closed", closed)
    return link_records.detached(0, text_of(key), closed=closed)


def unsettled(key: LinkKey, tag: bytes, state: Mapping[str, Any] | None) -> Record:
    """Make the record `unsettled` of a delivery and its state."""
    check.check_tag(tag)
    text = None if state is None else definitions.as_json(state)
    return link_records.unsettled(0, text_of(key), tag, text)


def settled(key: LinkKey, tags: Sequence[bytes]) -> Record:
    """`settled`: of many deliveries in one record, which the service takes apart."""
    check.check_tags(tags)
    text = json.dumps([tag.hex() for tag in tags])
    return Record(Kind.SETTLED, 0, holder=text_of(key), detail=text)


_RECORDS: Mapping[type[StoreCall], Callable[..., Record]] = {
    CreateCall: created,
    AlterCall: altered,
    DestroyCall: destroyed,
    BindCall: bound,
    UnbindCall: unbound,
    ConfigureCall: configured,
    EnqueueCall: enqueued,
    DequeueCall: dequeued,
    AcquireCall: acquired,
    ReleaseCall: released,
    AttachCall: attached,
    DetachCall: detached,
    UnsettledCall: unsettled,
    SettleCall: settled,
}


def _definition(kind: Kind, wiring: Queue | Exchange, detail: str | None) -> Record:
    if isinstance(wiring, Queue):
        return Record(kind, 0, wiring.name, detail=detail)
    return Record(kind, 0, exchange=wiring.name, detail=detail)


def _binding(kind: Kind, key: ExchangeBindingKey, detail: str | None) -> Record:
    exchange, queue, binding_key = key
    return Record(kind, 0, queue, exchange=exchange, binding_key=binding_key, detail=detail)


def recovered_of(sections: Iterable[tuple[Any, ...]]) -> Recovered:
    """Collect what the store service sent in sections into one `Recovered`.

    See `broker_shim.service.recovery_rows` for the sections.
    """
    state = Recovered([], [], {}, {}, {}, {}, {})
    entries: dict[str, Entries] = {}
    for section, *columns in sections:
        if section == "wiring":
            _wire(state, entries, columns[0])
        elif section == "configured":
            state.configured.update({(c, key): json.loads(detail) for c, key, detail in columns[0]})
        elif section == "links":
            state.links.update({link_key(text): json.loads(detail) for text, detail in columns[0]})
        elif section == "deliveries":
            _add_deliveries(state, columns[0])
        elif section == "queue":
            _add_entries(entries.setdefault(columns[0], Entries()), *columns[1:])
    return replace(state, entries=entries)


def _wire(
    state: Recovered,
    entries: dict[str, Entries],
    rows: Iterable[tuple[str, Any, str]],
) -> None:
    for kind, name, detail in rows:
        if kind == "queue":
            state.queues.append(queue_of(name, detail))
            entries[name] = Entries()
        elif kind == "exchange":
            state.exchanges.append(exchange_of(name, detail))
        else:
            state.bindings[ExchangeBindingKey(*name)] = json.loads(detail)["arguments"]


def _add_deliveries(recovered: Recovered, rows: Iterable[tuple[str, bytes, str | None]]) -> None:
    unsettled: dict[LinkKey, dict[bytes, Any]] = {}
    for text, tag, state in rows:
        unsettled.setdefault(link_key(text), {})[tag] = None if state is None else json.loads(state)
    for key, states in unsettled.items():
        recovered.unsettled[key] = {**recovered.unsettled.get(key, {}), **states}


def _add_entries(entries: Entries, *columns: Any) -> None:
    ids, positions, ats, priorities, expires_at, message_bytes = map(_int64, columns[:6])
    acquired, counts, annotated = map(dict, columns[6:])
    ends = [NEVER if expires < 0 else expires for expires in expires_at]
    held: list[Held] = []
    if acquired or counts or annotated:
        held = [(acquired.get(i), counts.get(i, 0), annotated.get(i)) for i in ids]
    entries.extend(ids, Columns(positions, ats, priorities, ends, message_bytes, held))


def _int64(packed: bytes) -> array[int]:
    values = array("q")
    values.frombytes(packed)
    if sys.byteorder == "little":
        values.byteswap()
    return values
