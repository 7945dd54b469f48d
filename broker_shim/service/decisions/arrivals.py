"""Records as they come off the wire: checked, and made into values of the store. Pure.

A record is a tuple of 16 fields, a header one of 20, as `sparkstore.core.codec` lays them out. What
a peer sends is checked by its *shape*, the tuple of the types of its fields. There are a few shapes
in all that a client ever sends, and each is looked at closely once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from broker_shim.durability import TerminusDurability
from broker_shim.errors import InvalidRequest
from sparkstore.core.link_records import LinkKey, link_key
from sparkstore.core.records import ExchangeBindingKey, Kind, MessageHeader, Record
from sparkstore.core.state_machine.arguments import MAX_NUMBER, check_header_fields
from sparkstore.core.state_machine.call_values import Exchange, Queue, StoredMessage
from sparkstore.core.state_machine.definitions import check_depth, exchange_of
from sparkstore.core.wiring_arguments import (
    HEADERS,
    check_binding_arguments,
    check_exchange_type,
)

Fields = tuple[Any, ...]

_MAX_SHAPES = 4096
_AT = {name: index for index, name in enumerate(Record._fields)}
_ID, _MESSAGE, _BODY = (_AT[name] for name in ("message_id", "message", "body"))
_PROTOCOL, _HEADER = (MessageHeader._fields.index(name) for name in ("protocol", "header"))
_new = tuple.__new__
_TYPES: Mapping[str, type] = {
    "kind": int,
    "at": int,
    "queue": str,
    "message_id": int,
    "holder": str,
    "delivery_count": int,
    "message": tuple,
    "body": bytes,
    "body_offset": int,
    "exchange": str,
    "binding_key": str,
    "detail": str,
}
"""Of the fields that a client may set; the others are nil."""
_NEEDED: Mapping[int, Sequence[str]] = {
    Kind.CREATED: ("detail",),
    Kind.ALTERED: ("queue", "detail"),
    Kind.DESTROYED: (),
    Kind.BOUND: ("queue", "exchange", "binding_key", "detail"),
    Kind.UNBOUND: ("queue", "exchange", "binding_key"),
    Kind.CONTENT: ("message_id", "body", "body_offset"),
    Kind.ENQUEUED: ("queue", "message_id", "message"),
    Kind.DEQUEUED: ("queue", "message_id"),
    Kind.ACQUIRED: ("queue", "message_id", "holder"),
    Kind.RELEASED: ("queue", "message_id", "holder"),
    Kind.CONFIGURED: ("exchange", "binding_key", "detail"),
    Kind.UNCONFIGURED: ("exchange", "binding_key"),
    Kind.STAGING_ABORTED: ("message_id",),
    Kind.ATTACHED: ("holder", "detail"),
    Kind.DETACHED: ("holder",),
    Kind.UNSETTLED: ("holder", "binding_key"),
    Kind.SETTLED: ("holder", "detail"),
}
_shapes: set[tuple[Any, ...]] = set()


def check_record(fields: Any) -> Fields:
    """Return fields, if they are a record that a client may send.

    Raises:
        InvalidRequest: They are not.
    """
    if type(fields) is not tuple or not fields:
        raise InvalidRequest("a record is an array of 16 fields")
    try:
        is_known = (fields[0], *map(type, fields)) in _shapes
    except TypeError as reason:  # an empty map is no kind
        raise InvalidRequest("the kind of a record is a number") from reason
    if not is_known:
        _look_at(fields)
        if len(_shapes) >= _MAX_SHAPES:
            _shapes.clear()
        _shapes.add((fields[0], *map(type, fields)))
    message_id = fields[_ID]
    if message_id is not None and not 0 <= message_id <= MAX_NUMBER:
        message = f"message id {message_id}: from 0 to {MAX_NUMBER}"
        raise InvalidRequest(message)
    return fields


def message_of(fields: Fields) -> StoredMessage:
    """The message that an `enqueued` record brings, or names (then its protocol is None).

    Raises:
        InvalidRequest: A field of its header cannot be, or its length is not that of its body.
    """
    header, body = fields[_MESSAGE], fields[_BODY]
    made: MessageHeader = _new(MessageHeader, header)  # as `_make`, which counts the fields again
    check_header_fields(made)
    body_bytes, header_bytes = made.body_bytes, made.header_bytes
    if header[_PROTOCOL] is None:
        return StoredMessage(fields[_ID], made, b"")
    if header_bytes != len(header[_HEADER] or b""):
        made = made._replace(header_bytes=len(header[_HEADER] or b""))
    if body is None:
        return StoredMessage(fields[_ID], made, b"", is_staged=body_bytes > 0)
    if len(body) != body_bytes:
        message = f"a body of {len(body)} bytes, of which the header says {body_bytes}"
        raise InvalidRequest(message)
    return StoredMessage(fields[_ID], made, body)


def definition_of(record: Record) -> Queue | Exchange:
    """The queue or exchange that a `created`, `altered` or `destroyed` record names.

    Raises:
        InvalidRequest: It names both or none, or its definition is not one.
    """
    if (record.queue is None) == (record.exchange is None):
        raise InvalidRequest("a definition is of a queue or of an exchange")
    if record.kind is Kind.DESTROYED:
        return (
            Queue(record.queue) if record.queue is not None else Exchange(record.exchange or "", "")
        )
    content = object_of(record.detail or "{}")
    try:
        durability = TerminusDurability(content.get("durability", 2))
    except ValueError as reason:
        raise InvalidRequest("the durability of a definition is 0, 1 or 2") from reason
    arguments, kind = content.get("arguments", {}), content.get("type", "")
    if not isinstance(arguments, dict) or not isinstance(kind, str):
        raise InvalidRequest("a definition has arguments (an object) and, of an exchange, a type")
    if record.queue is not None:
        return Queue(record.queue, durability, arguments)
    return Exchange(record.exchange or "", kind, durability, arguments)


def check_known(exchanges: Mapping[str, str], record: Record) -> None:
    """Refuse wiring that other brokers on the store could not make.

    Args:
        exchanges: The definitions of those there are.
        record: Of any kind but those of messages.

    Raises:
        InvalidRequest: It is an exchange of a type that none knows, or a binding to a headers
            exchange that no message could be held against.
    """
    name = record.exchange or ""
    if record.kind is Kind.CREATED and name:
        check_exchange_type(name, object_of(record.detail or "{}").get("type", ""))
    elif record.kind is Kind.BOUND and name in exchanges:
        arguments = object_of(record.detail or "{}").get("arguments")
        if exchange_of(name, exchanges[name]).type == HEADERS and isinstance(arguments, dict):
            check_binding_arguments(name, HEADERS, arguments)


def binding_of(record: Record) -> ExchangeBindingKey:
    """The key in a `bound` or `unbound` record."""
    return ExchangeBindingKey(record.exchange or "", record.queue or "", record.binding_key or "")


def object_of(detail: str) -> dict[str, Any]:
    """Read a detail as a JSON object.

    Raises:
        InvalidRequest: It is none.
    """
    try:
        content = json.loads(detail, parse_constant=_no_number)
    except (ValueError, RecursionError) as reason:
        message = f"detail is not JSON: {reason}"
        raise InvalidRequest(message) from reason
    if not isinstance(content, dict):
        raise InvalidRequest("detail is not a JSON object")
    check_depth(detail)
    return content


def link_key_of(record: Record) -> LinkKey:
    """The link that a record is about.

    Raises:
        InvalidRequest: Its holder names none.
    """
    return check_link(record.holder or "")


def check_link(text: object) -> LinkKey:
    """The key of a link that a member names: other members and the store are told of it.

    Raises:
        InvalidRequest: The text names none.
    """
    if not isinstance(text, str):
        raise InvalidRequest("a link is named by a text")
    try:
        return link_key(text)
    except (ValueError, RecursionError) as reason:
        message = f"a link is named by a JSON array of container, name and role: {reason}"
        raise InvalidRequest(message) from reason


def tag_of(text: object) -> bytes:
    """Read a delivery tag. Raises InvalidRequest if it is no text in hexadecimal."""
    try:
        if isinstance(text, str):
            return bytes.fromhex(text)
    except ValueError:
        pass
    raise InvalidRequest("a delivery tag is text in hexadecimal")


def tags_of(record: Record) -> list[bytes]:
    """The tags of a `settled` record; raises InvalidRequest if they are no JSON array of tags."""
    try:
        tags = json.loads(record.detail or "")
    except (ValueError, RecursionError) as reason:
        message = f"the tags of a settled record are a JSON array: {reason}"
        raise InvalidRequest(message) from reason
    if not isinstance(tags, list):
        raise InvalidRequest("the tags of a settled record are a JSON array")
    return [tag_of(text) for text in tags]


def annotations_of(detail: str | None) -> dict[str, Any] | None:
    """Read what an entry adds to its message's annotations.

    The state machine asks whether that is annotations.
    """
    return None if detail is None else object_of(detail)


def _no_number(constant: str) -> None:
    """JSON has no NaN and no infinity, though Python reads them."""
    message = f"{constant} is not JSON"
    raise ValueError(message)


def record_of(fields: Fields) -> Record:
    """A checked record of any kind but `enqueued`."""
    return Record._make((Kind(fields[0]), *fields[1:]))


def _look_at(fields: Fields) -> None:
    if len(fields) != len(Record._fields):
        message = f"a record is an array of {len(Record._fields)} fields, not of {len(fields)}"
        raise InvalidRequest(message)
    needed = _NEEDED.get(fields[0]) if type(fields[0]) is int else None
    if needed is None:
        message = f"records of kind {fields[0]!r} are not for clients to send"
        raise InvalidRequest(message)
    for name, value in zip(Record._fields, fields, strict=True):
        if value is None:
            if name in needed:
                message = f"a record of kind {Kind(fields[0]).column} needs {name}"
                raise InvalidRequest(message)
        elif type(value) is not _TYPES.get(name):
            message = f"{name} of a record cannot be {type(value).__name__}"
            raise InvalidRequest(message)
