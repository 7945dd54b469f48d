"""An AMQP 1.0 message: encoded bytes ↔ `MessageHeader` and body. Pure, sans-I/O.

    encoded message    [header] [delivery-annotations] [message-annotations] [properties]
                       [application-properties]  body: data… | sequence… | value   [footer]

    message_type       column body                       column header
    data               bytes of the one data section     everything else, the body's lead-in
                                                         (descriptor, constructor, length) included
    binary             bytes of an amqp-value binary     likewise
    text               UTF-8 of an amqp-value string     likewise
    amqp               the body sections as they came    everything else

So header and body are the message cut in two pieces, and nothing of its bytes is lost, whatever way
of encoding the sender chose. SQL sees text and bytes as such where it can.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

from broker_shim.amqp_1_0.composites import Header, Properties
from broker_shim.amqp_1_0.definitions import (
    AMQP_VALUE_SECTION,
    APPLICATION_PROPERTIES_SECTION,
    DATA_SECTION,
    DELIVERY_ANNOTATIONS_SECTION,
    FOOTER_SECTION,
    MESSAGE_ANNOTATIONS_SECTION,
)
from broker_shim.listener_1_0.messages.annotations import annotated
from broker_shim.listener_1_0.messages.column_text import text_of
from broker_shim.listener_1_0.messages.foreign_headers import foreign_sections, neutral_header
from broker_shim.listener_1_0.messages.limits import check_header
from broker_shim.listener_1_0.messages.long_content import LongContent
from broker_shim.messages.neutral import READERS
from broker_shim.protocol_1_0.codec.errors import DecodeError
from broker_shim.protocol_1_0.codec.scanner import content_start, entry_at, scalar_at
from broker_shim.protocol_1_0.codec.sections import (
    BODY,
    MessageSection,
    check_annotations,
    check_body,
    entries_of,
    fields_of,
    sections_of,
)
from broker_shim.protocol_1_0.codec.values import Scalar
from sparkstore.core.annotations import NONE
from sparkstore.core.records import MessageHeader

PROTOCOL = "amqp-1.0"
MAX_PRIORITY = 9
_ANY_SIZE = 1 << 62

_DEFAULTS: list[object] = [*MessageHeader(PROTOCOL, durable=False)]
_REST, _CREATED_AT, _DURABLE, _PRIORITY, _EXPIRES_AT, _MESSAGE_TYPE, _GROUP_ID = map(
    MessageHeader._fields.index,
    ("header", "created_at", "durable", "priority", "expires_at", "message_type", "group_id"),
)
"""Places of columns in a `MessageHeader`."""
_HEADER_BYTES, _BODY_BYTES, _PROPERTIES = map(
    MessageHeader._fields.index, ("header_bytes", "body_bytes", "properties")
)
_PROPERTY_COLUMNS = [
    MessageHeader._fields.index(name)
    for name in (
        *("amqp_message_id", "user_id", "to", "subject", "reply_to", "correlation_id"),
        *("content_type", "content_encoding"),
    )
]
_TRACE_NAME = "traceparent"
_TRACEPARENT = _TRACE_NAME.encode()
_ANNOTATIONS = frozenset({MESSAGE_ANNOTATIONS_SECTION, FOOTER_SECTION})
_BINARY, _STRING = frozenset({0xA0, 0xB0}), frozenset({0xA1, 0xB1})
_SHORT_HEADER = 32
"""Bytes of a header section's value, at most, that is remembered as it was read."""
_new = tuple.__new__  # a NamedTuple's own constructor is a call of Python for each
_LEAST_AT_US, _MOST_AT_US = -62_135_596_800_000_000, 253_402_300_799_000_000
"""Years 1 to 9999: what a timestamp column can show."""


def parse(
    encoded: bytes, *, now_us: int, most_header_bytes: int = _ANY_SIZE
) -> tuple[MessageHeader, bytes]:
    """The header and the body of a message as it came from the wire.

    Args:
        encoded: The whole message.
        now_us: When it came, UTC µs: a time to live counts from here.
        most_header_bytes: Of all sections but the body's.

    Raises:
        DecodeError: It is not an AMQP 1.0 message, or strict readers would choke on it; with the
            condition resource-limit-exceeded, its header is too large.
    """
    header, first, end = located(encoded, now_us=now_us, most_header_bytes=most_header_bytes)
    return header, encoded[first:end]


def located(
    encoded: bytes, *, now_us: int, most_header_bytes: int = _ANY_SIZE
) -> tuple[MessageHeader, int, int]:
    """The header of a message, and where its body begins and ends; all else as `parse`."""
    sections = sections_of(encoded)
    if not sections:
        raise DecodeError("a message has at least one section: this one has no byte")
    message_type, first, end = _body(encoded, sections)
    check_header(encoded, sections, most_header_bytes)
    rest = encoded[:first] + encoded[end:]
    columns = _columns(encoded, sections, now_us)
    return _header(rest, message_type, end - first, columns), first, end


def parse_around(
    rest: bytes, content: LongContent, *, now_us: int, most_header_bytes: int = _ANY_SIZE
) -> MessageHeader:
    """The header of a message whose content comes, or came, by itself.

    Args:
        rest: Everything but the content: what came before it and, once it has come, after it.
        content: What `long_content` found.
        now_us: As for `parse`.
        most_header_bytes: As for `parse`.

    Raises:
        DecodeError: It is not a message, as `parse` says.
    """
    sections = sections_of(rest, is_cut=True)
    check_header(rest, sections, most_header_bytes)
    columns = _columns(rest, sections, now_us)
    return _header(rest, content.message_type, content.length, columns)


def _columns(encoded: bytes, sections: list[MessageSection], now_us: int) -> list[object]:
    """The columns of a `MessageHeader`, in their order: those that are read from sections."""
    columns, trace = _DEFAULTS.copy(), None
    for code, _start, value, end in sections:
        if code == Header.CODE:
            _read_header(_header_fields(encoded, value, end), columns, now_us)
        elif code == Properties.CODE:
            _read_properties(fields_of(Properties, encoded, value), columns)
        elif code == APPLICATION_PROPERTIES_SECTION:
            columns[_PROPERTIES] = _as_text(entries_of(encoded, value))
        elif code in _ANNOTATIONS:
            check_annotations(encoded, value)
            if code == MESSAGE_ANNOTATIONS_SECTION and _TRACEPARENT in encoded[value:end]:
                trace = text_of(entry_at(encoded, value, _TRACEPARENT))
        else:
            check_body(code, encoded, value)
    if trace is not None:
        columns[_PROPERTIES] = _with_trace(columns[_PROPERTIES], trace)
    return columns


def _with_trace(properties: Any, trace: str) -> tuple[tuple[str, str], ...]:
    """Add the trace context of a message's annotations to the text of its properties.

    Decision: SQL and browse show it as the property that most clients send, wherever it came, so
    no table needs another column. The message itself is stored and sent as it came.
    """
    if any(name == _TRACE_NAME for name, _text in properties):
        return tuple(properties)
    return (*properties, (_TRACE_NAME, trace))


def _header(
    rest: bytes, message_type: str, body_bytes: int, columns: list[object]
) -> MessageHeader:
    columns[_REST], columns[_MESSAGE_TYPE] = rest, message_type
    columns[_HEADER_BYTES], columns[_BODY_BYTES] = len(rest), body_bytes
    return _new(MessageHeader, columns)  # each was read by the rule of its own column


def header_sections(header: MessageHeader) -> list[MessageSection]:
    """Find the sections in the header column of a message.

    That of the body, if the column has any of it, is cut off before its content.

    Raises:
        DecodeError: The column is not what `parse` made.
    """
    return sections_of(header.header or b"", is_cut=header.message_type != "amqp")


class FramingHeader(NamedTuple):
    """Everything of a message on the wire but its content, worked out once.

    Attributes:
        lead: Everything before the content.
        tail: Everything after it: the footer.
        body_bytes: Length of the content.
    """

    lead: bytes
    tail: bytes
    body_bytes: int


def framing(
    header: MessageHeader,
    *,
    delivery_count: int,
    now_us: int,
    is_first: bool = False,
    detail: str | None = None,
) -> FramingHeader:
    """Make what goes before and after the content on the wire: as it came, but for a few changes.

    An intermediary has to change some fields (AMQP 1.0 section 3.2.1). The delivery-count rises by
    the failed deliveries here, and a time to live shrinks by the time it waited. The field
    first-acquirer tells whether nobody had it before. Delivery annotations, which were meant for
    us, go no further. What its entry adds to the message annotations goes with them. A message of
    another protocol has its properties in this one's form, and its body in one data section.

    Args:
        header: Of the message.
        delivery_count: Failed deliveries here.
        now_us: The time of sending, UTC µs.
        is_first: No link has acquired it before, as far as we know. It is not told where the
            message came with first-acquirer false, or with failed deliveries: there somebody had.
        detail: Of its entry (`sparkstore.core.annotations`).
    """
    is_first = is_first and not delivery_count
    if header.protocol != PROTOCOL or header.header is None:
        lead = _wrapping(header, delivery_count, detail, is_first=is_first)
        return FramingHeader(lead, b"", header.body_bytes)
    rest = header.header
    sections = header_sections(header)
    kept, lead, ours = 0, b"", None
    for code, _start, value, end in sections:
        if code == Header.CODE:
            came = rest[:end]
            lead = _header_as_sent(header, came, value, delivery_count, now_us, is_first=is_first)
            kept = end
        elif code == DELIVERY_ANNOTATIONS_SECTION:
            kept = end
        elif code == MESSAGE_ANNOTATIONS_SECTION and detail is not None:
            ours, kept = value, end
        else:
            break
    if not lead and (delivery_count or is_first):
        lead = _header_section(header, _HeaderFields(), delivery_count, now_us, is_first=is_first)
    if detail is not None and (ours is not None or detail != NONE):
        lead += annotated(rest, ours, detail)
    place = _content_place(sections, len(rest))
    return FramingHeader(lead + rest[kept:place], rest[place:], header.body_bytes)


def _body(encoded: bytes, sections: list[MessageSection]) -> tuple[str, int, int]:
    """The type of the message, and where what its body column holds begins and ends."""
    last = sections[-1]
    if last[0] == DATA_SECTION and (len(sections) == 1 or sections[-2][0] != DATA_SECTION):
        return "data", content_start(encoded, last[2]), last[3]  # as most
    body = [section for section in sections if section[0] in BODY]
    if not body:
        at = _content_place(sections, len(encoded))
        return "amqp", at, at
    code, start, value, end = body[0]
    if len(body) == 1 and code == DATA_SECTION:  # and a footer after it
        return "data", content_start(encoded, value), end
    if code == AMQP_VALUE_SECTION and encoded[value] in _BINARY:
        return "binary", content_start(encoded, value), end
    if code == AMQP_VALUE_SECTION and encoded[value] in _STRING:
        scalar_at(encoded, value)  # is UTF-8, or DecodeError
        return "text", content_start(encoded, value), end
    return "amqp", start, body[-1][3]


def _content_place(sections: list[MessageSection], byte_count: int) -> int:
    """Find where the content goes: behind the body's lead-in, or where a body would stand."""
    if len(sections) > 1 and sections[-1][0] in BODY and sections[-2][0] not in BODY:
        return sections[-1][3]  # as nearly always: nothing comes after it
    for code, start, _value, end in sections:
        if code in BODY:
            return end
        if code == FOOTER_SECTION:
            return start
    return byte_count


class _HeaderFields(NamedTuple):
    """The fields of a header section; None where it has none."""

    durable: bool | None = None
    priority: int | None = None
    ttl: int | None = None
    first_acquirer: bool | None = None
    delivery_count: int | None = None


def _header_fields(encoded: bytes, value: int, end: int) -> _HeaderFields:
    """Read the fields of a header section.

    Raises:
        DecodeError: It is not what such a section may hold.
    """
    if end - value <= _SHORT_HEADER:
        try:
            return _short_header_fields(bytes(encoded[value:end]))
        except DecodeError:
            pass  # the reader below says where in the message
    return _HeaderFields(*fields_of(Header, encoded, value)[:5])


@lru_cache(maxsize=1 << 10)
def _short_header_fields(value: bytes) -> _HeaderFields:
    """Most messages of a sender have the same header section; what it says is scalar."""
    return _HeaderFields(*fields_of(Header, value, 0)[:5])


def _read_header(fields: _HeaderFields, columns: list[object], now_us: int) -> None:
    """Fill in durable and priority, and when its time to live ends."""
    columns[_DURABLE] = fields.durable is True
    if fields.priority is not None:
        columns[_PRIORITY] = min(fields.priority, MAX_PRIORITY)
    if fields.ttl is not None:
        columns[_EXPIRES_AT] = in_range(now_us + fields.ttl * 1000)


def _read_properties(items: list[Any], columns: list[object]) -> None:
    """Fill in the columns of the properties section; the earlier of two ends of its life."""
    for column, value in zip(_PROPERTY_COLUMNS, items, strict=False):
        if value is not None:
            columns[column] = text_of(value)
    expiry, created, group = (*items[8:11], None, None, None)[:3]
    if created is not None:
        columns[_CREATED_AT] = in_range(created * 1000)
    columns[_GROUP_ID] = group
    if expiry is not None:
        ends = (columns[_EXPIRES_AT], in_range(expiry * 1000))
        columns[_EXPIRES_AT] = min((at for at in ends if isinstance(at, int)), default=None)


def in_range(at_us: int) -> int | None:
    """A time, UTC µs; None if no timestamp column can show it."""
    return int(at_us) if _LEAST_AT_US <= at_us <= _MOST_AT_US else None


def _as_text(entries: list[tuple[str, Scalar]]) -> tuple[tuple[str, str], ...]:
    """Application properties as text: the last of equal keys, nulls left out."""
    texts: dict[str, str] = {}
    for name, value in entries:
        text = text_of(value)
        if text is not None:
            texts[name] = text
    return tuple(texts.items())


def _kept_fields(value: bytes) -> _HeaderFields:
    """Read a header section's value that a root has.

    One that cannot be read says nothing: earlier releases took some that this one refuses, and a
    message that a root has must be delivered.
    """
    with suppress(DecodeError):
        return _header_fields(value, 0, len(value))
    return _HeaderFields()


def _header_as_sent(
    header: MessageHeader,
    came: bytes,
    value: int,
    delivery_count: int,
    now_us: int,
    *,
    is_first: bool,
) -> bytes:
    """The header section as it goes out, which came as these bytes; where its value begins."""
    fields = _kept_fields(bytes(came[value:]))  # a bytearray, where a store hands those out
    is_first = is_first and fields.first_acquirer is not False and not fields.delivery_count
    if fields.ttl is None and not delivery_count and is_first is bool(fields.first_acquirer):
        return came
    return _header_section(header, fields, delivery_count, now_us, is_first=is_first)


def _header_section(
    header: MessageHeader,
    fields: _HeaderFields,
    delivery_count: int,
    now_us: int,
    *,
    is_first: bool,
) -> bytes:
    """A header section, which says every field."""
    ttl = fields.ttl
    if ttl is not None and header.expires_at is not None:
        ttl = min(ttl, max(0, (header.expires_at - now_us) // 1000))
    count = min((fields.delivery_count or 0) + delivery_count, 0xFFFF_FFFF)
    return _section(header.durable, fields.priority, ttl, is_first, count)


@lru_cache(maxsize=1 << 10)
def _section(
    durable: bool,  # noqa: FBT001  # a cache asks for arguments by position
    priority: int | None,
    ttl: int | None,
    is_first: bool,  # noqa: FBT001
    delivery_count: int,
) -> bytes:
    """A header section: most messages get one of a few."""
    content = b"\x41" if durable else b"\x42"
    content += b"\x40" if priority is None else bytes((0x50, priority & 0xFF))
    content += b"\x40" if ttl is None else _uint(ttl)
    content += b"\x41" if is_first else b"\x42"
    content += _uint(delivery_count)
    return bytes((0, 0x53, Header.CODE, 0xC0, len(content) + 1, 5)) + content


def _uint(number: int) -> bytes:
    return b"\x70" + number.to_bytes(4, "big")


def _wrapping(
    header: MessageHeader, delivery_count: int, detail: str | None, *, is_first: bool
) -> bytes:
    fields = _HeaderFields(priority=header.priority)
    lead = _header_section(header, fields, delivery_count, 0, is_first=is_first)
    annotations = b"" if detail is None else annotated(b"", None, detail)
    sections = foreign_sections(header)
    body = b"\x00\x53\x75\xb0" + header.body_bytes.to_bytes(4, "big")
    return b"".join((lead, annotations, sections, body))


READERS[PROTOCOL] = lambda header: neutral_header(header, header_sections(header))
