"""AMQP 1.0 values in bytes: where one ends, and what a primitive one says. Pure, sans-I/O.

    value        constructor byte, then what its high nibble says:
                 4x nothing · 5x 1 byte · 6x 2 · 7x 4 · 8x 8 · 9x 16
                 Ax 1 byte length, Bx 4 bytes length, then the bytes
                 Cx Ex 1 byte, Dx Fx 4 bytes length of the rest, then a count, then items
                 00 described: a descriptor (a value), then a value

Nothing here recurses into what a peer sent: a compound value is skipped by its length and a chain
of descriptors is cut at `_MAX_DESCRIPTORS`, so depth costs a hostile peer, never us.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID


class MalformedMessage(ValueError):
    """The peer's bytes are not AMQP 1.0: refuse the message."""


class TooLarge(MalformedMessage):
    """There is more of it than is taken: refuse the message."""


class Timestamp(int):
    """Milliseconds since 1970 UTC."""


class Symbol(str):
    """ASCII text from a constrained domain."""

    __slots__ = ()


class Encoded(bytes):
    """A value that nobody here looks into, as it came."""


Value = None | bool | int | float | str | bytes | UUID | Timestamp | Symbol | Encoded

_MAX_DESCRIPTORS = 8
_LENGTH_1, _LENGTH_4, _UNKNOWN = -1, -4, -9
_BY_NIBBLE = {
    0x4: 0,
    0x5: 1,
    0x6: 2,
    0x7: 4,
    0x8: 8,
    0x9: 16,
    **dict.fromkeys((0xA, 0xC, 0xE), _LENGTH_1),
    **dict.fromkeys((0xB, 0xD, 0xF), _LENGTH_4),
}
_WIDTHS = tuple(_BY_NIBBLE.get(constructor >> 4, _UNKNOWN) for constructor in range(256))
"""Bytes of content, or what tells their number, by constructor."""
_CONSTANTS: dict[int, bool | int | None] = {0x40: None, 0x41: True, 0x42: False, 0x43: 0, 0x44: 0}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _fixed(layout: str) -> Callable[[bytes], Value]:
    unpack = struct.Struct(layout).unpack

    def read(content: bytes) -> Value:
        value: Value = unpack(content)[0]
        return value

    return read


def _utf8(content: bytes) -> str:
    return str(content, "utf-8")


_READ: dict[int, Callable[[bytes], Value]] = {
    0x50: _fixed(">B"),
    0x51: _fixed(">b"),
    0x52: _fixed(">B"),
    0x53: _fixed(">B"),
    0x54: _fixed(">b"),
    0x55: _fixed(">b"),
    0x56: _fixed(">?"),
    0x60: _fixed(">H"),
    0x61: _fixed(">h"),
    0x70: _fixed(">I"),
    0x71: _fixed(">i"),
    0x72: _fixed(">f"),
    0x73: lambda content: str(content, "utf-32-be"),
    0x80: _fixed(">Q"),
    0x81: _fixed(">q"),
    0x82: _fixed(">d"),
    0x83: lambda content: Timestamp(int.from_bytes(content, "big", signed=True)),
    0x98: lambda content: UUID(bytes=content),
    0xA0: bytes,
    0xA1: _utf8,
    0xA3: lambda content: Symbol(str(content, "ascii")),
    0xB0: bytes,
    0xB1: _utf8,
    0xB3: lambda content: Symbol(str(content, "ascii")),
}
"""What a primitive with content says, by constructor; others stay `Encoded`."""


def content_at(encoded: bytes, start: int) -> tuple[int, int]:
    """Where the content of the value that starts at `start` begins and ends.

    Raises:
        MalformedMessage: It is described, unknown, or ends after the bytes do.
    """
    size = len(encoded)
    if start >= size:
        raise MalformedMessage("a value is missing at the end")
    width = _WIDTHS[encoded[start]]
    first = start + 1
    if width >= 0:
        end = first + width
    elif width == _LENGTH_1:
        first += 1
        end = first + (encoded[start + 1] if first <= size else size)
    elif width == _LENGTH_4:
        first += 4
        end = first + int.from_bytes(encoded[start + 1 : first], "big")
    else:
        message = f"no such constructor: 0x{encoded[start]:02x}"
        raise MalformedMessage(message)
    if end > size or first > size:
        message = f"a value at byte {start} ends at {end}, after the end ({size})"
        raise MalformedMessage(message)
    return first, end


def skip(encoded: bytes, start: int) -> int:
    """Where the value that starts at `start` ends, described or not.

    Raises:
        MalformedMessage: As `content_at`; more than eight descriptors on one value.
    """
    if start >= len(encoded) or encoded[start]:
        return content_at(encoded, start)[1]
    missing = 1
    for _ in range(2 * _MAX_DESCRIPTORS):
        if start < len(encoded) and encoded[start] == 0:
            start += 1
            missing += 1
            continue
        start = content_at(encoded, start)[1]
        missing -= 1
        if not missing:
            return start
    raise MalformedMessage("a value with too many descriptors")


def value_at(encoded: bytes, start: int) -> tuple[Value, int]:
    """The value that starts at `start`, and where it ends; anything not primitive is `Encoded`.

    Raises:
        MalformedMessage: As `skip`; text that is not UTF-8.
    """
    constructor = encoded[start] if start < len(encoded) else 0xFF
    if constructor in _CONSTANTS:
        return _CONSTANTS[constructor], start + 1
    if constructor == 0:
        end = skip(encoded, start)
        return Encoded(encoded[start:end]), end
    first, end = content_at(encoded, start)
    read = _READ.get(constructor)
    if read is None:
        return Encoded(encoded[start:end]), end
    try:
        return read(encoded[first:end]), end
    except (ValueError, struct.error) as reason:
        message = f"unreadable value at byte {start}: {reason}"
        raise MalformedMessage(message) from reason


def items_at(encoded: bytes, start: int) -> tuple[list[Value], int]:
    """The items of the list or map (keys and values in turn) at `start`, and where it ends.

    Raises:
        MalformedMessage: It is neither; an item is not readable; items do not fill it.
    """
    code = encoded[start] if start < len(encoded) else 0
    if code in {0x45, 0x40}:  # list0, and null where a list may be
        return [], start + 1
    if code not in {0xC0, 0xC1, 0xD0, 0xD1}:
        message = f"a list or a map was expected, not constructor 0x{code:02x}"
        raise MalformedMessage(message)
    first, end = content_at(encoded, start)
    width = 1 if code < 0xD0 else 4
    count = int.from_bytes(encoded[first : first + width], "big")
    items: list[Value] = []
    at = first + width
    while at < end:
        value, at = value_at(encoded, at)
        items.append(value)
    if at != end or len(items) != count:
        message = f"a list of {count} items holds {len(items)}, or runs past its end"
        raise MalformedMessage(message)
    return items, end


def text_of(value: Value) -> str | None:
    """A value as the SQL columns show it; None for null and for what is not a primitive."""
    match value:
        case None | Encoded():
            return None
        case bool():
            return "true" if value else "false"
        case Timestamp():
            return _iso(value)
        case bytes():
            return _printable(value)
        case _:
            return str(value)


def _iso(at_ms: int) -> str:
    try:
        return (_EPOCH + timedelta(milliseconds=at_ms)).isoformat(timespec="milliseconds")
    except OverflowError:
        return str(int(at_ms))


def _printable(content: bytes) -> str:
    try:
        return str(content, "utf-8")
    except UnicodeDecodeError:
        return "0x" + content.hex()
