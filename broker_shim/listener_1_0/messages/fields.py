"""What the sections of a message may hold, by AMQP 1.0 part 3, section 3.2. Pure, sans-I/O.

A message goes out with the bytes it came with. Were a wrong type taken here, every consumer whose
library reads strictly would lose its link over the message, and get it again: tried with go-amqp
1.7, which ends the link, and Qpid JMS 2.8, which never hands it out. So it is refused as it comes.
Values inside bodies, annotations and application properties are the application's own: they are
skipped by their length.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from broker_shim.listener_1_0.messages.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
)
from broker_shim.listener_1_0.messages.types import (
    MalformedMessage,
    Value,
    content_at,
    skip,
    value_at,
)

_ANNOTATIONS = frozenset({MESSAGE_ANNOTATIONS, FOOTER})  # of the message, and its footer
_NULL, _LIST0 = 0x40, 0x45
_BOOLEAN = frozenset({0x41, 0x42, 0x56})
_UBYTE = frozenset({0x50})
_UINT = frozenset({0x43, 0x52, 0x70})
_ULONG = frozenset({0x44, 0x53, 0x80})
_TIMESTAMP = frozenset({0x83})
_UUID = frozenset({0x98})
_BINARY = frozenset({0xA0, 0xB0})
_STRING = frozenset({0xA1, 0xB1})
_SYMBOL = frozenset({0xA3, 0xB3})
_LIST = frozenset({0x45, 0xC0, 0xD0})
_MAP = frozenset({0xC1, 0xD1})
_MESSAGE_ID = _ULONG | _UUID | _BINARY | _STRING

_HEADER = (
    ("durable", _BOOLEAN),
    ("priority", _UBYTE),
    ("ttl", _UINT),
    ("first-acquirer", _BOOLEAN),
    ("delivery-count", _UINT),
)
_PROPERTIES = (
    ("message-id", _MESSAGE_ID),
    ("user-id", _BINARY),
    ("to", _STRING),
    ("subject", _STRING),
    ("reply-to", _STRING),
    ("correlation-id", _MESSAGE_ID),
    ("content-type", _SYMBOL),
    ("content-encoding", _SYMBOL),
    ("absolute-expiry-time", _TIMESTAMP),
    ("creation-time", _TIMESTAMP),
    ("group-id", _STRING),
    ("group-sequence", _UINT),
    ("reply-to-group-id", _STRING),
)
FIELDS = {
    code: tuple((name, constructors | {_NULL}) for name, constructors in fields)
    for code, fields in ((HEADER, _HEADER), (PROPERTIES, _PROPERTIES))
}
"""Fields in order: name and constructors; each may be null."""
_ANNOTATION_KEYS = _SYMBOL | _ULONG
_CONTENT = {DATA: _BINARY, SEQUENCE: _LIST}


def items_of(encoded: bytes, code: int, start: int) -> list[Value]:
    """What the section with this descriptor code says, its value starting at `start`.

    That is the fields of header and properties, and keys and values in turn of application
    properties; of the others only what holds them is looked at, and the answer is empty.

    Raises:
        MalformedMessage: It holds what its section may not.
    """
    if code in FIELDS:
        return _fields(encoded, start, FIELDS[code])
    if code == APPLICATION_PROPERTIES:
        return _application_properties(encoded, start)
    if code in _ANNOTATIONS:
        _check_annotations(encoded, start)
    elif code in _CONTENT and encoded[start] not in _CONTENT[code]:
        message = f"a body of the wrong type, 0x{encoded[start]:02x}"
        raise MalformedMessage(message)
    return []


def _opened(encoded: bytes, start: int, constructors: Collection[int]) -> tuple[int, int, int]:
    """Where the items of a compound value begin and end, and how many it says they are."""
    constructor = encoded[start]
    if constructor == _NULL:
        return start, start, 0
    if constructor not in constructors:
        message = f"at byte {start}: no section of this kind has constructor 0x{constructor:02x}"
        raise MalformedMessage(message)
    first, end = content_at(encoded, start)
    if constructor == _LIST0:
        return first, end, 0
    width = 1 if constructor < 0xD0 else 4
    return first + width, end, int.from_bytes(encoded[first : first + width], "big")


def _closed(at: int, end: int, count: int, found: int) -> None:
    if at != end or found != count:
        message = f"a list or map of {count} items holds {found}, or runs past its end"
        raise MalformedMessage(message)


def _fields(
    encoded: bytes, start: int, fields: Sequence[tuple[str, Collection[int]]]
) -> list[Value]:
    """Those that are there: some at the end may not be."""
    at, end, count = _opened(encoded, start, _LIST)
    items: list[Value] = []
    for name, constructors in fields:
        if at >= end:
            break
        if encoded[at] not in constructors:
            message = f"{name} has a value of the wrong type, 0x{encoded[at]:02x}"
            raise MalformedMessage(message)
        value, at = value_at(encoded, at)
        items.append(value)
    _closed(at, end, count, len(items))
    return items


def _application_properties(encoded: bytes, start: int) -> list[Value]:
    """Keys and values in turn."""
    at, end, count = _opened(encoded, start, _MAP)
    items: list[Value] = []
    while at < end:
        _check_key(encoded, at, _STRING)
        key, at = value_at(encoded, at)
        value, at = value_at(encoded, at)
        items += (key, value)
    _closed(at, end, count, len(items))
    return items


def _check_annotations(encoded: bytes, start: int) -> None:
    at, end, count = _opened(encoded, start, _MAP)
    found = 0
    while at < end:
        _check_key(encoded, at, _ANNOTATION_KEYS)
        at = skip(encoded, content_at(encoded, at)[1])
        found += 2
    _closed(at, end, count, found)


def _check_key(encoded: bytes, at: int, constructors: Collection[int]) -> None:
    if encoded[at] not in constructors:
        message = f"a key of the wrong type, 0x{encoded[at]:02x}, at byte {at}"
        raise MalformedMessage(message)
