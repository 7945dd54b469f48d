"""The sections of an encoded AMQP 1.0 message: where each begins and ends. Pure, sans-I/O."""

from __future__ import annotations

from typing import NamedTuple

from broker_shim.embedded.amqp_types import DecodeError, skip, value_at

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
        DecodeError: They are no message.
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
            raise DecodeError(message)
        if last in BODY and code in BODY and code != last:
            raise DecodeError("a body of two kinds")
        if is_cut and code in BODY and last not in BODY:
            sections.append(Section(code, at, value, lead_in_end(encoded, value)))
        else:
            sections.append(Section(code, at, value, skip(encoded, value)))
        at, last = sections[-1].end, code
    return sections


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
    except (DecodeError, IndexError):
        return None
    message_type = _LONG_TYPES.get((code, prefix[value]))
    if message_type is None or start > len(prefix):
        return None
    return LongContent(message_type, start, int.from_bytes(prefix[value + 1 : start], "big"))


def _descriptor(encoded: bytes, at: int) -> tuple[int, int]:
    if encoded[at] != 0:
        message = f"a section was expected at byte {at}"
        raise DecodeError(message)
    descriptor, value = value_at(encoded, at + 1)
    code = _NAMES.get(descriptor, 0) if isinstance(descriptor, str) else descriptor
    if not isinstance(code, int) or not HEADER <= code <= FOOTER:
        message = f"no such section: {descriptor!r}"
        raise DecodeError(message)
    return code, value


def lead_in_end(encoded: bytes, value: int) -> int:
    """Where the content begins of a value that starts with a constructor and a length."""
    if value >= len(encoded):
        raise DecodeError("a body was expected at the end")
    return value + (2 if encoded[value] < 0xB0 else 5)
