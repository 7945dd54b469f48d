"""A message looked into but not decoded: where its sections lie. Pure.

    [header] [delivery-annotations] [message-annotations] [properties] [application-properties]
    body: data, data, ... | amqp-sequence, amqp-sequence, ... | amqp-value
    [footer]

Each section is a described value. `read(encoded, section.start)` decodes one that somebody wants,
as a `Header` or `Properties`; the body is never decoded here. Nothing recurses: a value is skipped
by its length, whatever is in it.
"""

from __future__ import annotations

from typing import NamedTuple

from broker_shim.amqp_1_0.composites import Header, Properties
from broker_shim.amqp_1_0.definitions import (
    AMQP_SEQUENCE_SECTION,
    AMQP_VALUE_SECTION,
    APPLICATION_PROPERTIES_SECTION,
    DATA_SECTION,
    DELIVERY_ANNOTATIONS_SECTION,
    FOOTER_SECTION,
    MESSAGE_ANNOTATIONS_SECTION,
)
from broker_shim.protocol_1_0.codec.decoder import MAX_DEPTH, WIDTH_OF, read
from broker_shim.protocol_1_0.codec.errors import DecodeError

BODY = frozenset({DATA_SECTION, AMQP_SEQUENCE_SECTION, AMQP_VALUE_SECTION})

_ORDER = {
    Header.CODE: 0,
    DELIVERY_ANNOTATIONS_SECTION: 1,
    MESSAGE_ANNOTATIONS_SECTION: 2,
    Properties.CODE: 3,
    APPLICATION_PROPERTIES_SECTION: 4,
    DATA_SECTION: 5,
    AMQP_SEQUENCE_SECTION: 5,
    AMQP_VALUE_SECTION: 5,
    FOOTER_SECTION: 6,
}

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


class MessageSection(NamedTuple):
    """Where a section lies in the message.

    Attributes:
        code: The number that describes the section (AMQP 1.0 3.2).
        start: Where it begins, with the descriptor.
        value: Where what is described begins.
        end: Where it ends.
    """

    code: int
    start: int
    value: int
    end: int


def sections_of(encoded: bytes) -> list[MessageSection]:
    """All sections of a message, in order.

    Raises:
        DecodeError: It is no sequence of sections, they are out of order, or none is the body.
    """
    found: list[MessageSection] = []
    at = 0
    while at < len(encoded):
        section = _section_at(encoded, at)
        if found:
            _check_order(found[-1].code, section.code)
        found.append(section)
        at = section.end
    if not any(each.code in BODY for each in found):
        raise DecodeError("a message without a body")
    return found


def skip(encoded: bytes, at: int) -> int:
    """Where the value that starts at `at` ends, described or not.

    Raises:
        DecodeError: It is cut short, unknown, or described more than `MAX_DEPTH` times.
    """
    missing = 1
    for _ in range(2 * MAX_DEPTH):
        if at < len(encoded) and encoded[at] == 0:
            missing += 1
            at += 1
            continue
        at = _skip_plain(encoded, at)
        missing -= 1
        if not missing:
            return at
    raise DecodeError("a value with too many descriptors")


def _skip_plain(encoded: bytes, at: int) -> int:
    """As `skip`, of a value that is not described."""
    category, width = WIDTH_OF.get(encoded[at] if at < len(encoded) else -1, ("none", 0))
    if category == "none":
        raise DecodeError("a value is missing, or its constructor is unknown")
    end = at + 1 + width
    if category != "fixed":
        end += int.from_bytes(encoded[at + 1 : end], "big")
    if end > len(encoded) or at + 1 + width > len(encoded):
        raise DecodeError("a value ends after its bytes do")
    return end


def _section_at(encoded: bytes, start: int) -> MessageSection:
    if encoded[start] != 0:
        raise DecodeError("a message with something that is no section")
    descriptor, value = read(encoded, start + 1)
    code = _SYMBOLS.get(descriptor, descriptor) if isinstance(descriptor, str) else descriptor
    if not isinstance(code, int) or code not in _ORDER:
        message = f"no section of a message: {descriptor!r:.60}"
        raise DecodeError(message)
    return MessageSection(int(code), start, value, skip(encoded, value))


def _check_order(before: int, after: int) -> None:
    is_repeated = before == after and after in _REPEATED
    if not is_repeated and _ORDER[before] >= _ORDER[after]:
        message = f"section 0x{after:02x} after 0x{before:02x}"
        raise DecodeError(message)
