"""Messages of other protocols as AMQP 1.0 shows them, and those of AMQP 1.0 for other protocols."""

from __future__ import annotations

from typing import Any

from broker_shim.amqp_1_0.composites import Properties
from broker_shim.amqp_1_0.definitions import (
    APPLICATION_PROPERTIES_SECTION,
    MESSAGE_ANNOTATIONS_SECTION,
)
from broker_shim.amqp_1_0.primitives import CLASSES, Timestamp
from broker_shim.messages.neutral import NeutralHeader, NeutralValue, neutral_of
from broker_shim.protocol_1_0.codec.composites import encoded_composite
from broker_shim.protocol_1_0.codec.decoder import read
from broker_shim.protocol_1_0.codec.encoder import described, write
from broker_shim.protocol_1_0.codec.errors import DecodeError, InvalidCommand
from broker_shim.protocol_1_0.codec.sections import MessageSection, fields_of
from sparkstore.core.records import MessageHeader

_KINDS = {cls: kind for kind, cls in CLASSES.items()}
_OWN_KINDS = {bool: "boolean", int: "long", float: "double", str: "string", bytes: "binary"}


def foreign_sections(header: MessageHeader) -> bytes:
    """The properties and application properties of a message of another protocol, encoded."""
    neutral = neutral_of(header)
    created_at, expires_at = header.created_at, header.expires_at
    properties = Properties(
        message_id=neutral.message_id,
        user_id=neutral.user_id,
        to=header.to,
        subject=header.subject,
        reply_to=header.reply_to,
        correlation_id=neutral.correlation_id,
        content_type=_symbol(header.content_type),
        content_encoding=_symbol(header.content_encoding),
        absolute_expiry_time=None if expires_at is None else Timestamp(expires_at // 1000),
        creation_time=None if created_at is None else Timestamp(created_at // 1000),
        group_id=header.group_id,
    )
    properties_of_application = {name: _value(value) for name, value in neutral.properties.items()}
    if header.app_id is not None:
        properties_of_application.setdefault("x-amqp-0-10.app-id", header.app_id)
    try:
        return encoded_composite(properties) + described(
            APPLICATION_PROPERTIES_SECTION, write(properties_of_application)
        )
    except InvalidCommand:  # something of it has no form here: the message is more than it
        return b""


def _symbol(text: str | None) -> str | None:
    return text if text is not None and text.isascii() else None


def _value(value: NeutralValue) -> Any:
    keep = CLASSES.get(value.kind)
    return value.value if keep is None else keep(value.value)


def neutral_header(header: MessageHeader, sections: list[MessageSection]) -> NeutralHeader:
    """Show a message of AMQP 1.0 to other protocols."""
    encoded = header.header or b""
    identity: list[Any] = []
    properties: dict[str, NeutralValue] = {}
    annotations: dict[str, NeutralValue] = {}
    try:
        for code, _start, value, _end in sections:
            if code == Properties.CODE:
                identity = fields_of(Properties, encoded, value)
            elif code == APPLICATION_PROPERTIES_SECTION:
                application_properties, _ = read(encoded, value)
                properties = {
                    str(name): neutral
                    for name, value_of_name in application_properties.items()
                    if (neutral := _neutral(value_of_name)) is not None
                }
            elif code == MESSAGE_ANNOTATIONS_SECTION:
                annotations = _of_delivery(read(encoded, value)[0])
    except DecodeError:  # it was read when it came: only a damaged root has one
        pass
    message_id, user_id, _to, _subject, _reply_to, correlation_id = [*identity, *[None] * 6][:6]
    return NeutralHeader(message_id, correlation_id, user_id, properties, annotations)


def _of_delivery(annotations: dict[Any, Any] | None) -> dict[str, NeutralValue]:
    """Annotations that say when a message is to be delivered, also if that is no time."""
    return {
        str(name): _neutral(value) or NeutralValue(type(value).__name__, value)
        for name, value in (annotations or {}).items()
        if isinstance(name, str) and name.startswith("x-opt-delivery-")
    }


def _neutral(value: Any) -> NeutralValue | None:
    cls = type(value)
    if cls.__name__ == "UUID":
        return NeutralValue("uuid", value)
    kind = _KINDS.get(cls) or _OWN_KINDS.get(cls)
    if kind is None:
        return None
    base = cls.__mro__[1] if cls in _KINDS else cls
    return NeutralValue(kind, base(value))
