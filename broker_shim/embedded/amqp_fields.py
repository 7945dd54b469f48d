"""What the sections of a message may hold, by AMQP 1.0 part 3, section 3.2. Pure, sans-I/O.

A message goes out with the bytes it came with. Were a wrong type taken here, every consumer whose
library reads strictly would lose its link over the message, and get it again: tried with go-amqp
1.7, which ends the link, and Qpid JMS 2.8, which never hands it out. So it is refused as it comes.
Values inside bodies, annotations and application properties are the application's own: they are
skipped by their length.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from broker_shim.embedded.amqp_types import DecodeError, Value, content_at, items_at, skip

_APPLICATION_PROPERTIES = 0x74
_NULL = 0x40
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
_FIELDS = {0x70: _HEADER, 0x73: _PROPERTIES}
"""Fields in order: name and constructors; each may be null."""
_ANNOTATION_KEYS = _SYMBOL | _ULONG
_KEYS = {0x72: _ANNOTATION_KEYS, 0x74: _STRING, 0x78: _ANNOTATION_KEYS}
_CONTENT = {0x75: _BINARY, 0x76: _LIST}


def items_of(encoded: bytes, code: int, start: int) -> list[Value]:
    """What the section with this descriptor code says, its value starting at `start`.

    That is the fields of header and properties, and keys and values in turn of application
    properties; of the others only what holds them is looked at, and the answer is empty.

    Raises:
        DecodeError: It holds what its section may not.
    """
    if code in _FIELDS:
        return _fields(encoded, start, _FIELDS[code])
    if code in _KEYS:
        _check_keys(encoded, start, _KEYS[code])
        return items_at(encoded, start)[0] if code == _APPLICATION_PROPERTIES else []
    if code in _CONTENT and encoded[start] not in _CONTENT[code]:
        message = f"a body of the wrong type, 0x{encoded[start]:02x}"
        raise DecodeError(message)
    return []


def _fields(
    encoded: bytes, start: int, fields: Sequence[tuple[str, Collection[int]]]
) -> list[Value]:
    """Those that are there: some at the end may not be."""
    items, _end = items_at(encoded, start)
    constructor = encoded[start]
    if constructor in _MAP or len(items) > len(fields):
        message = f"at byte {start}: a list of at most {len(fields)} fields was expected"
        raise DecodeError(message)
    at = start + (3 if constructor < 0xD0 else 9)
    for (name, constructors), _item in zip(fields, items, strict=False):
        if encoded[at] not in constructors and encoded[at] != _NULL:
            message = f"{name} has a value of the wrong type, 0x{encoded[at]:02x}"
            raise DecodeError(message)
        at = content_at(encoded, at)[1]
    return items


def _check_keys(encoded: bytes, start: int, constructors: Collection[int]) -> None:
    """Nothing, if the map is whole and its keys are of these types."""
    code = encoded[start] if start < len(encoded) else 0
    if code == _NULL:
        return
    if code not in _MAP:
        message = f"a map was expected, not constructor 0x{code:02x}"
        raise DecodeError(message)
    at, end = content_at(encoded, start)
    width = 1 if code < 0xD0 else 4
    count = int.from_bytes(encoded[at : at + width], "big")
    at += width
    found = 0
    while at < end:
        if encoded[at] not in constructors:
            message = f"a key of the wrong type, 0x{encoded[at]:02x}, at byte {at}"
            raise DecodeError(message)
        at = skip(encoded, content_at(encoded, at)[1])
        found += 2
    if at != end or found != count:
        message = f"a map of {count} keys and values holds {found}, or runs past its end"
        raise DecodeError(message)
