"""An AMQP 1.0 message: encoded bytes ↔ `MessageHeader` and body. Pure, sans-I/O.

    encoded message    [header] [delivery-annotations] [message-annotations] [properties]
                       [application-properties]  body: data… | sequence… | value   [footer]

    message_type       column body                       column header
    data               bytes of the one data section     everything else, the body's lead-in
                                                         (descriptor, constructor, length) included
    binary             bytes of an amqp-value binary     likewise
    text               UTF-8 of an amqp-value string     likewise
    amqp               the body sections as they came    everything else

So header and body are the message cut in two pieces, and `restore` puts back the same bytes,
whatever way of encoding the sender chose. SQL sees text and bytes as such where it can.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from broker_shim.listener_1_0.messages.annotations import annotated
from broker_shim.listener_1_0.messages.fields import items_of
from broker_shim.listener_1_0.messages.scan import ends_at
from broker_shim.listener_1_0.messages.sections import (
    APPLICATION_PROPERTIES,
    BODY,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    VALUE,
    LongContent,
    Section,
    check_header,
    lead_in_end,
    sections_of,
)
from broker_shim.listener_1_0.messages.types import (
    MalformedMessage,
    Timestamp,
    Value,
    content_at,
    items_at,
    text_of,
    value_at,
)
from broker_shim.messages.header import FramingHeader
from sparkstore.core.annotations import NONE
from sparkstore.core.records import MessageHeader

PROTOCOL = "amqp-1.0"
DEFAULT_PRIORITY = 4
MAX_PRIORITY = 9
_ANY_SIZE = 1 << 62

_DEFAULTS: list[object] = [*MessageHeader(PROTOCOL, durable=False)]
_REST, _DURABLE, _PRIORITY, _CREATED_AT, _EXPIRES_AT, _MESSAGE_TYPE, _GROUP_ID = map(
    MessageHeader._fields.index,
    ("header", "durable", "priority", "created_at", "expires_at", "message_type", "group_id"),
)
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
_BINARY, _STRING = frozenset({0xA0, 0xB0}), frozenset({0xA1, 0xB1})
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
        MalformedMessage: It is not an AMQP 1.0 message, or strict readers would choke on it.
        TooLarge: Its header is.
    """
    sections = sections_of(encoded)
    if not sections:
        raise MalformedMessage("a message has at least one section: this one has no byte")
    message_type, first, end = _body(encoded, sections)
    check_header(encoded, sections, most_header_bytes)
    rest = encoded[:first] + encoded[end:]
    columns = _columns(encoded, sections, now_us)
    return _header(rest, message_type, end - first, columns), encoded[first:end]


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
        MalformedMessage: It is not an AMQP 1.0 message.
        TooLarge: Its header is.
    """
    sections = sections_of(rest, is_cut=True)
    check_header(rest, sections, most_header_bytes)
    columns = _columns(rest, sections, now_us)
    return _header(rest, content.message_type, content.length, columns)


def _columns(encoded: bytes, sections: list[Section], now_us: int) -> list[object]:
    """The columns of a `MessageHeader`, in their order: those that are read from sections."""
    columns = _DEFAULTS.copy()
    for section in sections:
        code = section.code
        items = items_of(encoded, code, section.value)
        if code == HEADER:
            _read_header(items, columns, now_us)
        elif code == PROPERTIES:
            _read_properties(items, columns)
        elif code == APPLICATION_PROPERTIES:
            columns[_PROPERTIES] = _as_text(items)
    return columns


def _header(
    rest: bytes, message_type: str, body_bytes: int, columns: list[object]
) -> MessageHeader:
    columns[_REST], columns[_MESSAGE_TYPE] = rest, message_type
    columns[_HEADER_BYTES], columns[_BODY_BYTES] = len(rest), body_bytes
    return MessageHeader._make(columns)  # each was read by the rule of its own column


def restore(header: MessageHeader, body: bytes) -> bytes:
    """The message as it came from the wire."""
    first, rest, _sections = _cut(header)
    return rest[:first] + body + rest[first:]


def values_of(header: MessageHeader) -> dict[int, int]:
    """Where the value of each section begins in the header column, by the section's code.

    Raises:
        MalformedMessage: The header column is not what `parse` made.
    """
    return {section.code: section.value for section in _cut(header)[2]}


def framing(
    header: MessageHeader,
    *,
    delivery_count: int,
    now_us: int,
    is_first: bool = False,
    detail: str | None = None,
) -> FramingHeader:
    """What goes before and after the content on the wire: as it came, but for a few changes.

    What an intermediary has to change (AMQP 1.0 section 3.2.1): delivery-count rises by the failed
    deliveries here, a time to live shrinks by the time it waited, first-acquirer tells whether
    nobody had it before, and delivery annotations, which were meant for us, go no further. What its
    entry adds to the message annotations is among them. A message of another protocol is wrapped in
    one data section.

    Args:
        header: Of the message.
        delivery_count: Failed deliveries here.
        now_us: UTC µs.
        is_first: No link has acquired it before, as far as we know. It is not told where the
            message came with first-acquirer false, or with failed deliveries: there somebody had.
        detail: Of its entry (`sparkstore.core.annotations`).
    """
    is_first = is_first and not delivery_count
    if header.protocol != PROTOCOL or header.header is None:
        lead = _wrapping(header, delivery_count, detail, is_first=is_first)
        return FramingHeader(lead, b"", header.body_bytes)
    first, rest, sections = _places(header)
    kept, lead, ours = 0, b"", None
    for code, value, end in sections:
        if code == HEADER:
            came = rest[:end]
            lead = _told(header, came, value, delivery_count, now_us, is_first=is_first)
            kept = end
        elif code == DELIVERY_ANNOTATIONS:
            kept = end
        elif code == MESSAGE_ANNOTATIONS and detail is not None:
            ours, kept = value, end
        else:
            break
    if not lead and (delivery_count or is_first):
        lead = _header_section(header, _Said(), delivery_count, now_us, is_first=is_first)
    if detail is not None and (ours is not None or detail != NONE):
        lead += annotated(rest, ours, detail)
    return FramingHeader(lead + rest[kept:first], rest[first:], header.body_bytes)


def _body(encoded: bytes, sections: list[Section]) -> tuple[str, int, int]:
    """What the body column holds, and where that begins and ends."""
    body = [section for section in sections if section.code in BODY]
    if not body:
        footer = [section.start for section in sections if section.code == FOOTER]
        at = footer[0] if footer else len(encoded)
        return "amqp", at, at
    code, _start, value, _end = body[0]
    if len(body) == 1 and code == DATA:
        return "data", *content_at(encoded, value)
    if code == VALUE and encoded[value] in _BINARY:
        return "binary", *content_at(encoded, value)
    if code == VALUE and encoded[value] in _STRING:
        value_at(encoded, value)  # is UTF-8, or MalformedMessage
        return "text", *content_at(encoded, value)
    return "amqp", body[0].start, body[-1].end


def _cut(header: MessageHeader) -> tuple[int, bytes, list[Section]]:
    """Where the body goes in the header column, that column, and its sections."""
    rest = header.header or b""
    if header.message_type == "amqp":
        sections = sections_of(rest)
        footer = [section.start for section in sections if section.code == FOOTER]
        return (footer[0] if footer else len(rest)), rest, sections
    sections = sections_of(rest, is_cut=True)
    return next(s.end for s in sections if s.code in BODY), rest, sections


def _places(header: MessageHeader) -> tuple[int, bytes, list[tuple[int, int, int]]]:
    """As `_cut`, of each section only code, value and end: the short way, where it can be."""
    rest = header.header or b""
    if header.message_type != "amqp" and (found := ends_at(rest)) and found[-1][0] in BODY:
        return lead_in_end(rest, found[-1][1]), rest, found
    first, rest, sections = _cut(header)
    return first, rest, [(each.code, each.value, each.end) for each in sections]


def _read_header(items: list[Value], columns: list[object], now_us: int) -> None:
    """Fill in durable and priority, and when its time to live ends."""
    durable, priority, ttl = _three(items)
    columns[_DURABLE] = durable is True
    if isinstance(priority, int):
        columns[_PRIORITY] = min(int(priority), MAX_PRIORITY)
    if isinstance(ttl, int):
        columns[_EXPIRES_AT] = _in_range(now_us + int(ttl) * 1000)


def _read_properties(items: list[Value], columns: list[object]) -> None:
    """Fill in the columns of the properties section; the earlier of two ends of its life."""
    for column, value in zip(_PROPERTY_COLUMNS, items, strict=False):
        if value is not None:
            columns[column] = text_of(value)
    expiry, created, group = _three(items[8:])
    if isinstance(created, Timestamp):
        columns[_CREATED_AT] = _in_range(created * 1000)
    if group is not None:
        columns[_GROUP_ID] = text_of(group)
    if isinstance(expiry, Timestamp):
        ends = (columns[_EXPIRES_AT], _in_range(expiry * 1000))
        columns[_EXPIRES_AT] = min((at for at in ends if isinstance(at, int)), default=None)


def _three(items: list[Value]) -> tuple[Value, Value, Value]:
    """The first three fields of a list; those left out at its end are null."""
    if len(items) == 3:
        return items[0], items[1], items[2]
    first, second, third, *_ = [*items, None, None, None]
    return first, second, third


def _in_range(at_us: int) -> int | None:
    return int(at_us) if _LEAST_AT_US <= at_us <= _MOST_AT_US else None


def _as_text(items: list[Value]) -> tuple[tuple[str, str], ...]:
    """Application properties as text: the last of equal keys, nulls left out."""
    if len(items) % 2:
        raise MalformedMessage("a map with a key and no value")
    found: dict[str, str] = {}
    for key, value in zip(items[::2], items[1::2], strict=True):
        name, text = text_of(key), text_of(value)
        if name is not None and text is not None:
            found[name] = text
    return tuple(found.items())


class _Said(NamedTuple):
    """What a header section says, but for durable; None where it says nothing."""

    priority: int | None = None
    ttl: int | None = None
    first_acquirer: bool | None = None
    delivery_count: int = 0


@lru_cache(maxsize=1 << 10)
def _said(value: bytes) -> _Said:
    """Of the value of a header section: most messages of a sender have the same."""
    items = items_at(value, 0)[0]
    _durable, priority, ttl, first, count = [*items, *[None] * 5][:5]
    return _Said(
        int(priority) if isinstance(priority, int) else None,
        int(ttl) if isinstance(ttl, int) else None,
        first if isinstance(first, bool) else None,
        int(count) if isinstance(count, int) else 0,
    )


def _told(
    header: MessageHeader,
    came: bytes,
    value: int,
    delivery_count: int,
    now_us: int,
    *,
    is_first: bool,
) -> bytes:
    """The header section as it goes out, which came as these bytes; where its value begins."""
    said = _said(bytes(came[value:]))  # a bytearray, where a store hands those out
    is_first = is_first and said.first_acquirer is not False and not said.delivery_count
    if said.ttl is None and not delivery_count and is_first is bool(said.first_acquirer):
        return came
    return _header_section(header, said, delivery_count, now_us, is_first=is_first)


def _header_section(
    header: MessageHeader, said: _Said, delivery_count: int, now_us: int, *, is_first: bool
) -> bytes:
    """A header section, every field in its shortest form."""
    content = b"\x41" if header.durable else b"\x42"
    content += b"\x40" if said.priority is None else bytes((0x50, said.priority & 0xFF))
    if said.ttl is None:
        content += b"\x40"
    elif header.expires_at is None:
        content += _uint(said.ttl)
    else:
        content += _uint(min(said.ttl, max(0, (header.expires_at - now_us) // 1000)))
    content += b"\x41" if is_first else b"\x42"
    content += _uint(min(said.delivery_count + delivery_count, 0xFFFF_FFFF))
    return bytes((0, 0x53, HEADER, 0xC0, len(content) + 1, 5)) + content


def _uint(number: int) -> bytes:
    return b"\x70" + number.to_bytes(4, "big")


def _wrapping(
    header: MessageHeader, delivery_count: int, detail: str | None, *, is_first: bool
) -> bytes:
    said = _Said(header.priority)
    lead = _header_section(header, said, delivery_count, 0, is_first=is_first)
    annotations = b"" if detail is None else annotated(b"", None, detail)
    return b"".join((lead, annotations, b"\x00\x53\x75\xb0", header.body_bytes.to_bytes(4, "big")))
