"""The sections of an encoded AMQP 1.0 message: where each begins and ends. Pure, sans-I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from broker_shim.listener_1_0.messages.types import MalformedMessage, TooLarge, skip, value_at

HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS = 0x70, 0x71, 0x72
PROPERTIES, APPLICATION_PROPERTIES = 0x73, 0x74
DATA, SEQUENCE, VALUE, FOOTER = 0x75, 0x76, 0x77, 0x78
BODY = frozenset({DATA, SEQUENCE, VALUE})
_REPEATABLE = frozenset({DATA, SEQUENCE})
_NAMES = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION_PROPERTIES,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": SEQUENCE,
    "amqp:amqp-value:*": VALUE,
    "amqp:footer:map": FOOTER,
}
MOST_SECTIONS = 4_096
"""Of one message: a body may be of many, each of no bytes."""
_ENTRY_BYTES = 128
_COUNT_1, _COUNT_4 = frozenset({0xC0, 0xC1}), frozenset({0xD0, 0xD1})
_USUAL = b"\x00\x53"
"""How a section begins: described, and a small number says as what."""
_LONG_TYPES = {(DATA, 0xB0): "data", (VALUE, 0xB0): "binary", (VALUE, 0xB1): "text"}


class Section(NamedTuple):
    """One section: its descriptor code, where it starts, where its value does, where it ends."""

    code: int
    start: int
    value: int
    end: int


def sections_of(encoded: bytes, *, is_cut: bool = False) -> list[Section]:
    """The sections in order; with `is_cut` the first of the body lacks its content.

    Raises:
        MalformedMessage: They are no message.
    """
    sections: list[Section] = []
    at, size, last = 0, len(encoded), 0
    while at < size:
        if encoded.startswith(_USUAL, at) and size > at + 2 and HEADER <= encoded[at + 2] <= FOOTER:
            code, value = encoded[at + 2], at + 3
        else:
            code, value = _descriptor(encoded, at)
        if code < last or (code == last and code not in _REPEATABLE):
            message = f"section 0x{code:02x} at byte {at} is out of order"
            raise MalformedMessage(message)
        if last in BODY and code in BODY and code != last:
            raise MalformedMessage("a body of two kinds")
        if is_cut and code in BODY and last not in BODY:
            sections.append(Section(code, at, value, lead_in_end(encoded, value)))
        else:
            sections.append(Section(code, at, value, skip(encoded, value)))
        at, last = sections[-1].end, code
        if len(sections) > MOST_SECTIONS:
            message = f"a message of more than {MOST_SECTIONS} sections"
            raise TooLarge(message)
    return sections


def check_header(encoded: bytes, sections: Sequence[Section], most_bytes: int) -> None:
    """See that the sections around the body of a message have no more bytes than that.

    A key counts as 128 bytes at least, and a value: to read one takes as long as to read so many.

    Raises:
        TooLarge: They have.
    """
    around = [each for each in sections if each.code not in BODY]
    header_bytes = sum(each.end - each.start for each in around)
    entries = sum(_count_of(encoded, each.value) for each in around)
    size = max(header_bytes, entries * _ENTRY_BYTES)
    if size > most_bytes:
        message = f"header sections of {header_bytes} bytes and {entries // 2} entries: a message"
        message += f" has at most {most_bytes} bytes around its body (an entry counts as 256)"
        raise TooLarge(message)


def check_begun(prefix: bytes) -> None:
    """See that the body of a message begins within its first bytes.

    Raises:
        TooLarge: It does not.
    """
    at = 0
    try:
        code, value = _descriptor(prefix, at)
        while code not in BODY:
            at = skip(prefix, value)
            code, value = _descriptor(prefix, at)
    except (MalformedMessage, IndexError) as reason:
        message = f"header sections that do not end within {len(prefix)} bytes"
        raise TooLarge(message) from reason


def _count_of(encoded: bytes, start: int) -> int:
    """How many items a list or a map says it has; 0 for anything else."""
    code = encoded[start]
    if code in _COUNT_1:
        return encoded[start + 2]
    return int.from_bytes(encoded[start + 5 : start + 9], "big") if code in _COUNT_4 else 0


class LongContent(NamedTuple):
    """Content that a message says it will have: its type, where it begins, how long it will be."""

    message_type: str
    start: int
    length: int


def long_content(prefix: bytes) -> LongContent | None:
    """The one large piece of content of a message that has not come whole.

    That is the first section of its body, if that is data, or a value that is binary or text, with
    a length of four bytes. None for anything else, which is not understood before it is whole.

    Args:
        prefix: The message from its beginning on, well into its content.
    """
    at = 0
    try:
        code, value = _descriptor(prefix, at)
        while code not in BODY:
            at = skip(prefix, value)
            code, value = _descriptor(prefix, at)
        start = lead_in_end(prefix, value)
    except (MalformedMessage, IndexError):
        return None
    message_type = _LONG_TYPES.get((code, prefix[value]))
    if message_type is None or start > len(prefix):
        return None
    return LongContent(message_type, start, int.from_bytes(prefix[value + 1 : start], "big"))


def _descriptor(encoded: bytes, at: int) -> tuple[int, int]:
    if encoded[at] != 0:
        message = f"a section was expected at byte {at}"
        raise MalformedMessage(message)
    descriptor, value = value_at(encoded, at + 1)
    code = _NAMES.get(descriptor, 0) if isinstance(descriptor, str) else descriptor
    if not isinstance(code, int) or not HEADER <= code <= FOOTER:
        message = f"no such section: {descriptor!r}"
        raise MalformedMessage(message)
    return code, value


def lead_in_end(encoded: bytes, value: int) -> int:
    """Where the content begins of a value that starts with a constructor and a length."""
    if value >= len(encoded):
        raise MalformedMessage("a body was expected at the end")
    return value + (2 if encoded[value] < 0xB0 else 5)
