"""A stored message ↔ the header segment of AMQP 0-10. Pure, but for the time.

    delivery properties   durable, priority, times; exchange and routing key are `to`
    message properties    ids, content type, reply-to, user and application id
    application headers   properties, with their types in the header's bytes and as text in SQL

A message that came over AMQP 0-10 keeps the bytes of its header, with the exchange that it was sent
to. They go out as they are; the body is its content. A redelivered one says so.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from broker_shim.amqp_0_10.definitions import ExecutionErrorCode, MessageDeliveryMode
from broker_shim.amqp_0_10.structs import (
    MessageDeliveryProperties,
    MessageFragmentProperties,
    MessageProperties,
    MessageReplyTo,
)
from broker_shim.framing.errors import RemoteCommandError
from broker_shim.framing.segments import HeaderSegment
from broker_shim.listener_0_10.messages.foreign_headers import application_headers, neutral_header
from broker_shim.messages.neutral import READERS, MessageIdentity, neutral_of
from broker_shim.store.interface import MessageHeader

PROTOCOL = "amqp-0-10"
_MOST_AT_US = 253_402_300_799_000_000
"""The year 9999: what a timestamp column can show."""
_SECONDS_UNTIL = 100_000_000_000
"""Larger times are milliseconds: the specification says seconds, Java clients send milliseconds."""
_MOST_PRIORITY = 9
_ITEM_BYTES = 256
_TYPES = {"text": "text/plain"}
"""What kind of body a message of AMQP 1.0 has, where it says no content type → what it is here."""
_PLAIN = (
    [MessageDeliveryProperties, MessageProperties],
    [MessageProperties, MessageDeliveryProperties],
)
"""Nothing but what is kept: such a header is kept as it came."""
_SUBJECT = ("qpid.subject", "x-jms-type", "JMSType")


def check_items(header: HeaderSegment, most_bytes: int) -> None:
    """Check that a header has no more items than AMQP 1.0 takes. Each counts as 256 bytes at least.

    One of 250 kB in items of four bytes would hold up all others for a third of a second.

    Raises:
        RemoteCommandError: It has, or it is none.
    """
    most = most_bytes // _ITEM_BYTES
    if _items_of(header.message.application_headers or {}) > most:
        text = f"a message's header has more than {most} items: max_header_bytes is {most_bytes}"
        raise RemoteCommandError(ExecutionErrorCode.RESOURCE_LIMIT_EXCEEDED, text)


def _items_of(value: Mapping[str, object] | Sequence[object]) -> int:
    values = value.values() if isinstance(value, Mapping) else value
    return len(value) + sum(_items_of(item) for item in values if isinstance(item, dict | list))


def read_header(header: HeaderSegment, exchange: str, body_bytes: int) -> MessageHeader:
    """The header that is stored of a message that came.

    Args:
        header: What its sender said.
        exchange: The exchange that it was sent to.
        body_bytes: Length of its body.

    Raises:
        RemoteCommandError: The header is none, or names another length than the body has: then a
            frame lied about its own, and has the next ones or a part of this one.
    """
    delivery, message = header.delivery, header.message
    if message.content_length not in (None, body_bytes):
        text = f"content-length is {message.content_length}, and the body has {body_bytes} bytes"
        text += ": check the sizes of its frames, or leave content-length out"
        raise RemoteCommandError(ExecutionErrorCode.ILLEGAL_ARGUMENT, text)
    named = exchange or None
    kinds = [*map(type, header.structs)]
    if delivery.exchange == named and not delivery.redelivered and kinds in _PLAIN:
        return columns(delivery, message, header.payload, body_bytes)
    delivery.exchange, delivery.redelivered = named, False
    others = [
        struct
        for struct in header.structs
        if not isinstance(
            struct, MessageDeliveryProperties | MessageProperties | MessageFragmentProperties
        )
    ]
    encoded = HeaderSegment.of(delivery, message, *others).payload
    return columns(delivery, message, encoded, body_bytes)


def columns(
    delivery: MessageDeliveryProperties, message: MessageProperties, encoded: bytes, body_bytes: int
) -> MessageHeader:
    """The columns that SQL sees, and the encoded header beside them."""
    headers = message.application_headers or {}
    return MessageHeader(
        PROTOCOL,
        encoded,
        durable=delivery.delivery_mode == MessageDeliveryMode.PERSISTENT,
        priority=min(delivery.priority, _MOST_PRIORITY),
        created_at=_time_us(delivery.timestamp),
        expires_at=_expires_at_us(delivery),
        content_type=message.content_type,
        content_encoding=message.content_encoding,
        correlation_id=_text(message.correlation_id),
        reply_to=_address(message.reply_to),
        subject=_subject(headers) if headers else None,
        to=_place(delivery.exchange, delivery.routing_key),
        user_id=_text(message.user_id),
        app_id=_text(message.app_id),
        message_type="data",
        amqp_message_id=None if message.message_id is None else str(message.message_id),
        group_id=_as_text(headers["JMSXGroupID"]) if "JMSXGroupID" in headers else None,
        header_bytes=len(encoded),
        body_bytes=body_bytes,
        properties=_properties(headers) if headers else (),
    )


def _properties(headers: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    texts = ((name, _as_text(value)) for name, value in headers.items())
    return tuple((name, text) for name, text in texts if text is not None)


def written_header(header: MessageHeader, *, is_redelivered: bool) -> bytes:
    """The header segment that a client gets, encoded.

    Args:
        header: Of the stored message, whatever protocol it came by.
        is_redelivered: Somebody had it before.
    """
    if header.protocol != PROTOCOL or header.header is None:
        delivery, message = _foreign(header)
        delivery.redelivered = is_redelivered
        return HeaderSegment.of(delivery, message).payload
    if not is_redelivered:
        return bytes(header.header)
    segment = HeaderSegment(bytes(header.header))
    segment.delivery.redelivered = True
    return HeaderSegment.of(*segment.structs).payload


def _foreign(header: MessageHeader) -> tuple[MessageDeliveryProperties, MessageProperties]:
    """Make the properties of a message of another protocol from its columns."""
    exchange, routing_key = _parts(header.to)
    mode = MessageDeliveryMode.PERSISTENT if header.durable else MessageDeliveryMode.NON_PERSISTENT
    delivery = MessageDeliveryProperties(
        priority=header.priority,
        delivery_mode=mode,
        timestamp=None if header.created_at is None else header.created_at // 1000,
        expiration=None if header.expires_at is None else header.expires_at // 1000,
        exchange=exchange,
        routing_key=routing_key,
    )
    neutral = neutral_of(header)
    headers = application_headers(neutral)
    if header.subject is not None:
        headers.setdefault(_SUBJECT[0], header.subject)
    reply_exchange, reply_key = _parts(header.reply_to)
    message = MessageProperties(
        content_length=header.body_bytes,
        message_id=_uuid(neutral.message_id),
        correlation_id=_bytes(neutral.correlation_id),
        reply_to=None if header.reply_to is None else MessageReplyTo(reply_exchange, reply_key),
        content_type=_short(header.content_type) or _TYPES.get(header.message_type or ""),
        content_encoding=_short(header.content_encoding),
        user_id=neutral.user_id,
        app_id=_bytes(header.app_id),
        application_headers=headers,
    )
    return delivery, message


def _time_us(at: int | None) -> int | None:
    if not at:
        return None
    at_us = at * (1_000_000 if at < _SECONDS_UNTIL else 1_000)
    return at_us if at_us <= _MOST_AT_US else None


def _expires_at_us(delivery: MessageDeliveryProperties) -> int | None:
    """The earlier of the two ways to say it; what lies beyond the year 9999 never comes."""
    ends = [_time_us(delivery.expiration)]
    if delivery.ttl:
        at_us = time.time_ns() // 1000 + delivery.ttl * 1000
        ends.append(at_us if at_us <= _MOST_AT_US else None)
    return min((at for at in ends if at is not None), default=None)


def _place(exchange: str | None, routing_key: str | None) -> str | None:
    """An exchange and a routing key as an address of this broker."""
    if not exchange:
        return routing_key
    return f"{exchange}/{routing_key}" if routing_key else exchange


def _address(reply_to: MessageReplyTo | None) -> str | None:
    return None if reply_to is None else _place(reply_to.exchange, reply_to.routing_key)


def _parts(address: str | None) -> tuple[str | None, str | None]:
    """Exchange and routing key of an address: the first `/` parts them."""
    if not address:
        return None, None
    exchange, slash, routing_key = address.partition("/")
    return (_short(exchange), _short(routing_key)) if slash else (None, _short(address))


def _subject(headers: dict[str, Any]) -> str | None:
    return next((text for name in _SUBJECT if (text := _as_text(headers.get(name)))), None)


def _text(content: bytes | None) -> str | None:
    """Decode bytes that are nearly always text."""
    if content is None:
        return None
    try:
        return str(content, "utf-8")
    except UnicodeDecodeError:
        return "0x" + content.hex()


def _as_text(value: Any) -> str | None:
    """A value as SQL sees it; None for one that it does not see."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return _text(value)
    if isinstance(value, str | int | float | UUID):
        return str(value)
    return None


def _bytes(identity: MessageIdentity) -> bytes | None:
    if identity is None:
        return None
    return (identity if isinstance(identity, bytes) else str(identity).encode())[:65_535]


def _short(text: str | None) -> str | None:
    """Cut a text to what a str8 holds."""
    return None if text is None else text.encode()[:255].decode(errors="ignore")


def _uuid(identity: MessageIdentity) -> UUID | None:
    """A message id, which has to be a UUID here: others are not kept."""
    if isinstance(identity, UUID) or not isinstance(identity, str):
        return identity if isinstance(identity, UUID) else None
    try:
        return UUID(identity.removeprefix("ID:").removeprefix("AMQP_UUID:"))
    except ValueError:
        return None


READERS[PROTOCOL] = neutral_header
