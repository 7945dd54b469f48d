"""Single values among encoded ones: where each ends, and what one of them says. Pure.

A message is stored and sent on as the bytes that it came with, and of those most are nobody's
business. So nothing here decodes what it passes over: a value is skipped by its length, whatever is
in it, and a chain of descriptors is cut off. Depth and counts cost a hostile peer, never us.

A selector asks a million headers for a few names each: `entry_at` and `item_at` take some 3 µs
instead of the 30 that decoding all of a header takes. `at` is where a value begins, with its
constructor; layouts are drawn in `decoder`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from broker_shim.protocol_1_0.codec.decoder import (
    LISTS,
    MAPS,
    MAX_DEPTH,
    SCALARS,
    UNREADABLE,
    items_at,
    unreadable,
)
from broker_shim.protocol_1_0.codec.errors import DecodeError
from broker_shim.protocol_1_0.codec.values import Opaque, Scalar

_UINT_AT = struct.Struct(">I").unpack_from
_LENGTH_1, _LENGTH_4, _NONE = -1, -4, 0
_EXTENTS = {
    0x4: 1,
    0x5: 2,
    0x6: 3,
    0x7: 5,
    0x8: 9,
    0x9: 17,
    **dict.fromkeys((0xA, 0xC, 0xE), _LENGTH_1),
    **dict.fromkeys((0xB, 0xD, 0xF), _LENGTH_4),
}
_EXTENT_OF = tuple(_EXTENTS.get(code >> 4, _NONE) for code in range(256))
"""Constructor → bytes with the constructor's; or how the length is told that comes next. The high
nibble says it of constructors that no release of AMQP has defined yet, too."""
_LEADS = {_LENGTH_1: 2, _LENGTH_4: 5}
_LEAD_OF = tuple(_LEADS.get(extent, 1) for extent in _EXTENT_OF)
"""Constructor → bytes before the content."""
_SHORT_MAP = 0xC1
_TEXT_1, _TEXT_4 = frozenset({0xA1, 0xA3}), frozenset({0xB1, 0xB3})


def skip(encoded: bytes, at: int) -> int:
    """Return where the value at `at` ends, described or not.

    Raises:
        DecodeError: It is cut short, unknown, or described by too many descriptors.
    """
    try:
        extent = _EXTENT_OF[encoded[at]]
        if extent > 0:
            end = at + extent
        elif extent == _LENGTH_1:
            end = at + 2 + encoded[at + 1]
        elif extent == _LENGTH_4:
            end = at + 5 + _UINT_AT(encoded, at + 1)[0]
        else:
            return _skip_described(encoded, at)
    except (IndexError, struct.error) as reason:
        message = f"a value is missing at byte {at}, the end"
        raise DecodeError(message) from reason
    if end > len(encoded):
        message = f"a value at byte {at} ends after its bytes do: at {end}, of {len(encoded)}"
        raise DecodeError(message)
    return end


def content_start(encoded: bytes, at: int) -> int:
    """Return where the content of the value at `at` begins: behind its constructor and its length.

    Raises:
        DecodeError: There is no value.
    """
    if at >= len(encoded):
        message = f"a value is missing at byte {at}, the end"
        raise DecodeError(message)
    return at + _LEAD_OF[encoded[at]]


def scalar_at(encoded: bytes, at: int) -> tuple[Scalar, int]:
    """The value at `at`, and where it ends.

    Raises:
        DecodeError: As `skip`; text in a wrong charset; a boolean that is neither true nor false.
    """
    try:
        reader = SCALARS.get(encoded[at])
        if reader is not None:
            return reader(encoded, at + 1, 0)
    except UNREADABLE as reason:
        message = f"{unreadable(reason).description}, at byte {at}"
        raise DecodeError(message) from reason
    end = skip(encoded, at)
    return Opaque(encoded[at:end]), end


def entries_start(encoded: bytes, at: int) -> tuple[int, int, int]:
    """Read the head of the map at `at`: its count of keys and values, where they begin, and end.

    Raises:
        DecodeError: It is something else, or cut short.
    """
    return _items_at(encoded, at, MAPS)


def _items_at(encoded: bytes, at: int, widths: Mapping[int, int]) -> tuple[int, int, int]:
    try:
        return items_at(encoded, at, widths, MAX_DEPTH)
    except UNREADABLE as reason:
        raise unreadable(reason) from reason


def item_count(encoded: bytes, at: int) -> int:
    """Return the count of items that the list or map at `at` says it has; 0 for anything else."""
    width = _COUNTED.get(encoded[at], 0)
    return int.from_bytes(encoded[at + 1 + width : at + 1 + 2 * width], "big")


_COUNTED = {**LISTS, **MAPS}


def item_at(encoded: bytes, at: int, index: int) -> Scalar:
    """An item of the list at `at`; None if the list is shorter.

    Raises:
        DecodeError: It is no list; an item runs past its end.
    """
    _count, at, end = _items_at(encoded, at, LISTS)
    for _ in range(index):
        if at >= end:
            return None
        at = skip(encoded, at)
    return scalar_at(encoded, at)[0] if at < end else None


def places_of(encoded: bytes, at: int) -> list[int]:
    """Return where each item of the list at `at` begins.

    Raises:
        DecodeError: It is no list; an item runs past its end.
    """
    _count, at, end = _items_at(encoded, at, LISTS)
    places = []
    while at < end:
        places.append(at)
        at = skip(encoded, at)
    return places


def entry_at(encoded: bytes, at: int, key: bytes) -> Scalar:
    """The value of a key (UTF-8) in the map at `at`; None without one, the last of several.

    Raises:
        DecodeError: It is no map; an item runs past its end.
    """
    size = len(encoded)
    if at + 2 < size and encoded[at] == _SHORT_MAP and (end := at + 2 + encoded[at + 1]) <= size:
        at += 3  # as nearly all: what `entries_start` says, in one line
    else:
        _count, at, end = entries_start(encoded, at)
    place = 0
    while at < end:
        if encoded[at] in _TEXT_1 and at + 1 < size:
            first = at + 2
            value = first + encoded[at + 1]
        else:
            value = skip(encoded, at)
            first = at + 5 if encoded[at] in _TEXT_4 else value
        if value - first == len(key) and encoded[first:value] == key and first < value:
            place = value
        extent = _EXTENT_OF[encoded[value]] if value < size else _NONE
        at = value + extent if extent > 0 else skip(encoded, value)
    if at > size:
        raise DecodeError("a map ends after its bytes do")
    return scalar_at(encoded, place)[0] if place else None


def entries_at(encoded: bytes, at: int) -> dict[bytes, int]:
    """Return where each value of the map at `at` begins, by its key (UTF-8), the last of several.

    Raises:
        DecodeError: It is no map; an item runs past its end.
    """
    _count, at, end = entries_start(encoded, at)
    places: dict[bytes, int] = {}
    while at < end:
        value = skip(encoded, at)
        first = at + 2 if encoded[at] in _TEXT_1 else at + 5 if encoded[at] in _TEXT_4 else value
        if first < value:
            places[encoded[first:value]] = value
        at = skip(encoded, value)
    return places


def _skip_described(encoded: bytes, at: int) -> int:
    """Skip a value that is described, or whose constructor is invalid."""
    missing = 1
    for _ in range(2 * MAX_DEPTH):
        if encoded[at] == 0:
            missing += 1
            at += 1
            continue
        if _EXTENT_OF[encoded[at]] is _NONE:
            message = f"no such constructor: 0x{encoded[at]:02x}, at byte {at}"
            raise DecodeError(message)
        at = skip(encoded, at)
        missing -= 1
        if not missing:
            return at
    raise DecodeError("a value with too many descriptors")
