"""A message looked into but not decoded: where its sections lie, and what those may hold. Pure.

    [header] [delivery-annotations] [message-annotations] [properties] [application-properties]
    body: data, data, ... | amqp-sequence, amqp-sequence, ... | amqp-value
    [footer]

Each section is a described value (AMQP 1.0 part 3, 3.2). `sections_of` finds them; `fields_of` and
`entries_of` read what the broker has columns for, `check_annotations` and `check_body` look at what
holds the rest. What is within bodies, annotations and values of application properties is the
application's own, and is skipped by its length.

Why the types of fields are checked at all: a message goes out with the bytes it came with. Were a
wrong type taken here, every consumer whose library reads strictly would lose its link over the
message, and get it again: tried with go-amqp 1.7, which ends the link, and Qpid JMS 2.8, which
never hands it out. So it is refused as it comes.
"""

from __future__ import annotations

from typing import Any

from broker_shim.amqp_1_0.composites import Header, Properties
from broker_shim.amqp_1_0.definitions import (
    AMQP_SEQUENCE_SECTION,
    AMQP_VALUE_SECTION,
    APPLICATION_PROPERTIES_SECTION,
    DATA_SECTION,
    DELIVERY_ANNOTATIONS_SECTION,
    FOOTER_SECTION,
    MESSAGE_ANNOTATIONS_SECTION,
    AmqpError,
)
from broker_shim.amqp_1_0.primitives import ENCODINGS
from broker_shim.protocol_1_0.codec.composites import said_fields
from broker_shim.protocol_1_0.codec.decoder import SCALARS, UNREADABLE, unreadable
from broker_shim.protocol_1_0.codec.errors import DecodeError
from broker_shim.protocol_1_0.codec.scanner import content_start, entries_start, scalar_at, skip
from broker_shim.protocol_1_0.codec.values import Opaque, Scalar

BODY = frozenset({DATA_SECTION, AMQP_SEQUENCE_SECTION, AMQP_VALUE_SECTION})

MOST_SECTIONS = 4_096
"""Of one message: a body may be of many, each of no bytes."""

_FIRST, _LAST = Header.CODE, FOOTER_SECTION
_REPEATED = frozenset({DATA_SECTION, AMQP_SEQUENCE_SECTION})
_SYMBOLS = {
    "amqp:header:list": Header.CODE,
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS_SECTION,
    "amqp:message-annotations:map": MESSAGE_ANNOTATIONS_SECTION,
    "amqp:properties:list": Properties.CODE,
    "amqp:application-properties:map": APPLICATION_PROPERTIES_SECTION,
    "amqp:data:binary": DATA_SECTION,
    "amqp:amqp-sequence:list": AMQP_SEQUENCE_SECTION,
    "amqp:amqp-value:*": AMQP_VALUE_SECTION,
    "amqp:footer:map": FOOTER_SECTION,
}
_SMALL_ULONG = 0x53


def _constructors(*kinds: str) -> frozenset[int]:
    return frozenset(code for kind in kinds for code, _, _ in ENCODINGS[kind])


_KEYS = {code: SCALARS[code] for code in _constructors("string")}
_ANNOTATION_KEYS = _constructors("symbol", "ulong")
_BODIES = {DATA_SECTION: _constructors("binary"), AMQP_SEQUENCE_SECTION: _constructors("list")}
_SHORT = frozenset({0xC0, 0xC1})  # lists and maps of up to 255 bytes
_NULL = 0x40


MessageSection = tuple[int, int, int, int]
"""Where a section lies: the code that describes it (AMQP 1.0 3.2), where it starts, with its
descriptor, where the value described begins, and where it ends.

A plain tuple, as some are made of every message: one with names takes as long as finding it."""


def sections_of(encoded: bytes, *, is_cut: bool = False) -> list[MessageSection]:
    """All sections of a message, in order; a message without a byte has none.

    Args:
        encoded: All bytes of the message, but for those of the body's content if it is cut.
        is_cut: True if the first section of the body lacks its content, and ends where that begins.

    Raises:
        DecodeError: It is no sequence of sections, they are out of order, or too many.
    """
    sections: list[MessageSection] = []
    at, size, last = 0, len(encoded), 0
    while at < size:
        code = encoded[at + 2] if at + 2 < size else 0
        if encoded[at] == 0 and _FIRST <= code <= _LAST and encoded[at + 1] == _SMALL_ULONG:
            value = at + 3  # as nearly all begin: described, by a small number
        else:
            code, value = _descriptor(encoded, at)
        if code <= last or last in BODY:
            _check_order(last, code, at)
            if len(sections) == MOST_SECTIONS:  # only those of a body may be many
                message = f"a message of more than {MOST_SECTIONS} sections"
                raise DecodeError(message, AmqpError.RESOURCE_LIMIT_EXCEEDED)
        if is_cut and code in BODY:
            end, is_cut = content_start(encoded, value), False
        elif value + 1 < size and encoded[value] in _SHORT:  # as nearly all: `skip` in one line
            end = value + 2 + encoded[value + 1]
        else:
            end = skip(encoded, value)
        sections.append((code, at, value, end))
        at, last = end, code
    if at > size:
        skip(encoded, sections[-1][2])  # which says what is wrong
    return sections


def values_before_body(encoded: bytes) -> dict[int, int]:
    """Return where the value of each section up to the body begins, by its code: for many headers.

    Whether they are in order was looked at when they came.

    Args:
        encoded: A message from its beginning on; what comes after its body's start may lack.

    Raises:
        DecodeError: It is no sequence of sections, or one of them is cut short.
    """
    places: dict[int, int] = {}
    at, size, code = 0, len(encoded), 0
    while at < size and code not in BODY:
        code = encoded[at + 2] if at + 2 < size else 0
        if encoded[at] == 0 and _FIRST <= code <= _LAST and encoded[at + 1] == _SMALL_ULONG:
            value = at + 3
        else:
            code, value = _descriptor(encoded, at)
        places[code] = value
        if value + 1 < size and encoded[value] in _SHORT:
            at = value + 2 + encoded[value + 1]
        elif code not in BODY:
            at = skip(encoded, value)
    if at > size:
        skip(encoded, value)  # which says what is wrong
    return places


def body_start(prefix: bytes) -> tuple[int, int]:
    """The code of the first section of a body, and where its value begins.

    Args:
        prefix: A message from its beginning on, as much of it as has come.

    Raises:
        DecodeError: The body does not begin within these bytes, or they are no message.
    """
    code, value = _descriptor(prefix, 0)
    while code not in BODY:
        code, value = _descriptor(prefix, skip(prefix, value))
    return code, value


def fields_of(kind: type[Header | Properties], encoded: bytes, at: int) -> list[Any]:
    """Return the fields, in order, of the header or properties section whose value is at `at`.

    A field is None if it is null; fields at the end that are left out are not in the list.

    Raises:
        DecodeError: It is not what such a section may hold.
    """
    if encoded[at] == _NULL:
        return []
    return said_fields(kind, encoded, at)


def entries_of(encoded: bytes, at: int) -> list[tuple[str, Scalar]]:
    """The application properties whose map is at `at`, as they were written.

    Raises:
        DecodeError: It is not what such a section may hold.
    """
    if encoded[at] == _NULL:
        return []
    count, at, end = entries_start(encoded, at)
    entries: list[tuple[str, Scalar]] = []
    try:
        while at < end:
            key_reader = _KEYS.get(encoded[at])
            if key_reader is None:
                raise _wrong_key(encoded, at)
            key, at = key_reader(encoded, at + 1, 0)
            reader = SCALARS.get(encoded[at])
            if reader is None:
                begin, at = at, skip(encoded, at)
                entries.append((key, Opaque(encoded[begin:at])))
            else:
                value, at = reader(encoded, at + 1, 0)
                entries.append((key, value))
    except UNREADABLE as reason:
        message = f"{unreadable(reason).description}, at byte {at}"
        raise DecodeError(message) from reason
    _check_filled(at, end, count, 2 * len(entries))
    return entries


def check_annotations(encoded: bytes, at: int) -> None:
    """Check that the annotations or the footer at `at` are a map with valid keys (3.2.10).

    Raises:
        DecodeError: They are not.
    """
    if encoded[at] == _NULL:
        return
    count, at, end = entries_start(encoded, at)
    item_count = 0
    while at < end:
        if encoded[at] not in _ANNOTATION_KEYS:
            raise _wrong_key(encoded, at)
        at = skip(encoded, skip(encoded, at))
        item_count += 2
    _check_filled(at, end, count, item_count)


def check_body(code: int, encoded: bytes, at: int) -> None:
    """Check that the content of a body section, at `at`, is of a type that it may hold.

    Raises:
        DecodeError: It is not.
    """
    if code in _BODIES and encoded[at] not in _BODIES[code]:
        message = f"a body of the wrong type, 0x{encoded[at]:02x}"
        raise DecodeError(message)


def _descriptor(encoded: bytes, at: int) -> tuple[int, int]:
    """The code of the section at `at`, and where its value begins."""
    if at >= len(encoded) or encoded[at] != 0:
        message = f"no section at byte {at}: a section was expected there"
        raise DecodeError(message)
    descriptor, value = scalar_at(encoded, at + 1)
    code = _SYMBOLS.get(descriptor, descriptor) if isinstance(descriptor, str) else descriptor
    if not isinstance(code, int) or code not in range(_FIRST, _LAST + 1):
        message = f"no section of a message: {descriptor!r:.60}, at byte {at}"
        raise DecodeError(message)
    return int(code), value


def _check_order(last: int, code: int, at: int) -> None:
    message = f"section 0x{code:02x} at byte {at} comes after 0x{last:02x}"
    if last in BODY and code in BODY and code != last:
        message = f"a body of two kinds: {message}"
    elif code > last or (code == last and code in _REPEATED):
        return
    raise DecodeError(message)


def _check_filled(at: int, end: int, count: int, item_count: int) -> None:
    if at != end or item_count != count:
        message = f"a map of {count} items holds {item_count}, or runs past its end"
        raise DecodeError(message)


def _wrong_key(encoded: bytes, at: int) -> DecodeError:
    return DecodeError(f"a key of the wrong type, 0x{encoded[at]:02x}, at byte {at}")
