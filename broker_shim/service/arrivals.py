"""Records as they come off the wire: checked, and made into values of the store. Pure.

A record is a tuple of 16 fields, a header one of 20, as `sparkstore.codec` lays them out. What a
peer sends is checked by its *shape*, the tuple of the types of its fields: there are a few shapes
in all that a client ever sends, and each is looked at closely once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from broker_shim.durability import TerminusDurability
from broker_shim.errors import InvalidRequest
from broker_shim.store.interface import BindingKey, Exchange, Message, MessageHeader, Queue
from sparkstore.records import Kind, Record

Fields = tuple[Any, ...]

_MAX_INT = (1 << 63) - 1
_MAX_SHAPES = 4096
_NIL = type(None)
_HEADER_FIELDS = len(MessageHeader._fields)
_AT = {name: index for index, name in enumerate(Record._fields)}
_QUEUE, _ID, _MESSAGE, _BODY = (_AT[name] for name in ("queue", "message_id", "message", "body"))
_IN_HEADER = {name: index for index, name in enumerate(MessageHeader._fields)}
_PROTOCOL, _HEADER, _PRIORITY, _CREATED_AT, _EXPIRES_AT, _HEADER_BYTES, _BODY_BYTES, _PROPERTIES = (
    _IN_HEADER[name]
    for name in (
        "protocol",
        "header",
        "priority",
        "created_at",
        "expires_at",
        "header_bytes",
        "body_bytes",
        "properties",
    )
)
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
_HEADER_TYPES: tuple[tuple[type, ...], ...] = (
    (str, _NIL),
    (bytes, _NIL),
    (bool,),
    (int,),
    (int, _NIL),
    (int, _NIL),
    *[(str, _NIL)] * 11,
    (int,),
    (int,),
    (tuple,),
)
_shapes: set[tuple[Any, ...]] = set()
_header_shapes: set[tuple[type, ...]] = set()


def check_record(fields: Any) -> Fields:
    """The same fields, if they are a record that a client may send.

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
    if message_id is not None and not 0 < message_id <= _MAX_INT:
        message = f"message id {message_id}: from 1 to {_MAX_INT}"
        raise InvalidRequest(message)
    return fields


def message_of(fields: Fields) -> Message:
    """The message that an `enqueued` record brings, or names (then its protocol is None).

    Raises:
        InvalidRequest: A field of its header cannot be, or its length is not that of its body.
    """
    header, body = fields[_MESSAGE], fields[_BODY]
    shape = tuple(map(type, header))
    if shape not in _header_shapes:
        _look_at_header(shape)
    made: MessageHeader = _new(MessageHeader, header)  # as `_make`, which counts the fields again
    body_bytes, header_bytes = header[_BODY_BYTES], header[_HEADER_BYTES]
    if not (
        0 <= header[_PRIORITY] <= 9
        and -_MAX_INT <= (header[_CREATED_AT] or 0) <= _MAX_INT
        and -_MAX_INT <= (header[_EXPIRES_AT] or 0) <= _MAX_INT
        and 0 <= body_bytes <= _MAX_INT
        and 0 <= header_bytes <= _MAX_INT
    ):
        raise InvalidRequest("a header's priority is 0 to 9, its times and lengths fit in 63 bits")
    if header[_PROPERTIES]:
        _check_properties(header[_PROPERTIES])
    if header[_PROTOCOL] is None:
        return Message(fields[_ID], made, b"")
    if header_bytes != len(header[_HEADER] or b""):
        made = made._replace(header_bytes=len(header[_HEADER] or b""))
    if body is None:
        return Message(fields[_ID], made, b"", is_staged=body_bytes > 0)
    if len(body) != body_bytes:
        message = f"a body of {len(body)} bytes, of which the header says {body_bytes}"
        raise InvalidRequest(message)
    return Message(fields[_ID], made, body)


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


def binding_of(record: Record) -> BindingKey:
    """The key in a `bound` or `unbound` record."""
    return BindingKey(record.exchange or "", record.queue or "", record.binding_key or "")


def object_of(detail: str) -> dict[str, Any]:
    """A JSON object.

    Raises:
        InvalidRequest: It is none.
    """
    try:
        content = json.loads(detail)
    except (ValueError, RecursionError) as reason:
        message = f"detail is not JSON: {reason}"
        raise InvalidRequest(message) from reason
    if not isinstance(content, dict):
        raise InvalidRequest("detail is not a JSON object")
    return content


def annotations_of(detail: str | None) -> dict[str, Any] | None:
    """What an entry adds to its message; the ledger asks whether that is annotations."""
    return None if detail is None else object_of(detail)


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


def _look_at_header(shape: tuple[type, ...]) -> None:
    if len(shape) != _HEADER_FIELDS:
        message = f"a header is an array of {_HEADER_FIELDS} fields, not of {len(shape)}"
        raise InvalidRequest(message)
    for name, kind, allowed in zip(MessageHeader._fields, shape, _HEADER_TYPES, strict=True):
        if kind not in allowed:
            message = f"{name} of a header cannot be {kind.__name__}"
            raise InvalidRequest(message)
    if len(_header_shapes) >= _MAX_SHAPES:
        _header_shapes.clear()
    _header_shapes.add(shape)


def _check_properties(properties: tuple[Any, ...]) -> None:
    for pair in properties:
        if (
            type(pair) is not tuple
            or len(pair) != 2
            or type(pair[0]) is not str
            or type(pair[1]) is not str
        ):
            raise InvalidRequest("properties of a header are [key, value] pairs of text")
