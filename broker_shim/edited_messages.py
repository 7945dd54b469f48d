"""A stored message with another body or other application properties, in its own protocol. Pure.

A message is never changed: who repairs it puts another one in its place. What is not edited stays
byte for byte: the sender's properties, annotations and types. A property that is there keeps its
type, a new one is a string. The body stays of its kind: text, a binary value, or data; one of
another kind becomes data. A footer may have a sum of the body, so it goes with the old one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from broker_shim.amqp_1_0.definitions import (
    AMQP_VALUE_SECTION,
    APPLICATION_PROPERTIES_SECTION,
    DATA_SECTION,
    FOOTER_SECTION,
)
from broker_shim.listener_1_0.messages.message import PROTOCOL, header_sections, parse
from broker_shim.protocol_1_0.codec.decoder import read
from broker_shim.protocol_1_0.codec.encoder import BY_KIND, described, write
from broker_shim.protocol_1_0.codec.errors import DecodeError, InvalidCommand
from broker_shim.protocol_1_0.codec.sections import BODY
from sparkstore.content.edits import MessageEdit
from sparkstore.core.records import MessageHeader
from sparkstore.errors import InvalidRequest

_OLDER, _RAW = "amqp-0-10", "raw"
_FLAGS = {"true": True, "false": False}


def edited(header: MessageHeader, body: bytes, edit: MessageEdit) -> tuple[MessageHeader, bytes]:
    """Make header and body of the message that an edit asks for; it never expires by itself.

    Raises:
        InvalidRequest: A value is not one of its property's type; the body is to be text, and is
            no UTF-8; or properties cannot be written in the message's protocol.
    """
    changed = body if edit.body is None else edit.body
    try:
        if header.protocol == PROTOCOL and header.header is not None:
            parts = _of_1_0(header, body, edit)
        elif header.protocol == _OLDER and header.header is not None:
            parts = _of_0_10(header, changed, edit)
        else:
            parts = _of_columns(header, edit), changed
    except (DecodeError, InvalidCommand) as reason:
        message = f"the edited message is none of its protocol: {reason}"
        raise InvalidRequest(message) from reason
    made, content = parts
    return made._replace(expires_at=None, body_bytes=len(content)), content


def _of_1_0(header: MessageHeader, body: bytes, edit: MessageEdit) -> tuple[MessageHeader, bytes]:
    rest, sections = bytes(header.header or b""), header_sections(header)
    before = lead_in = footer = b""
    properties: dict[Any, Any] = {}
    for code, start, value, end in sections:
        if code == APPLICATION_PROPERTIES_SECTION:
            properties = read(rest, value)[0] or {}
        elif code in BODY:
            lead_in += rest[start:end]
        elif code == FOOTER_SECTION:
            footer = rest[start:end]
        else:
            before += rest[start:end]
    kept = _changed(properties, edit)
    encoded = described(APPLICATION_PROPERTIES_SECTION, write(kept)) if kept else b""
    content = lead_in + body + footer if edit.body is None else _body(header, edit.body)
    return parse(before + encoded + content, now_us=0)


def _body(header: MessageHeader, body: bytes) -> bytes:
    if header.message_type == "text":
        try:
            return described(AMQP_VALUE_SECTION, BY_KIND["string"](body.decode()))
        except UnicodeDecodeError as reason:
            message = f"the message's body is text, and the new one is no UTF-8: {reason}"
            raise InvalidRequest(message) from reason
    code = AMQP_VALUE_SECTION if header.message_type == "binary" else DATA_SECTION
    return described(code, BY_KIND["binary"](body))


def _of_0_10(header: MessageHeader, body: bytes, edit: MessageEdit) -> tuple[MessageHeader, bytes]:
    """Imported with the first such message, as `broker_shim.serve.headers` does."""
    from broker_shim.amqp_0_10.structs import (  # noqa: PLC0415
        MessageDeliveryProperties,
        MessageProperties,
    )
    from broker_shim.framing.errors import RemoteCommandError  # noqa: PLC0415
    from broker_shim.framing.segments import HeaderSegment  # noqa: PLC0415
    from broker_shim.listener_0_10.messages.message_headers import columns  # noqa: PLC0415

    try:
        segment = HeaderSegment(bytes(header.header or b""))
        delivery, message = segment.delivery, segment.message
        known = MessageDeliveryProperties | MessageProperties
        others = [struct for struct in segment.structs if not isinstance(struct, known)]
        message.application_headers = _changed(message.application_headers or {}, edit)
        message.content_length = len(body)
        encoded = HeaderSegment.of(delivery, message, *others).payload
    except RemoteCommandError as reason:
        text = f"the edited message is none of its protocol: {reason}"
        raise InvalidRequest(text) from reason
    return columns(delivery, message, encoded, len(body)), body


def _of_columns(header: MessageHeader, edit: MessageEdit) -> MessageHeader:
    is_edited = bool(edit.properties or edit.removed)
    if is_edited and header.protocol != _RAW and header.header is not None:
        text = f"properties of a message of {header.protocol} cannot be edited, only its body"
        raise InvalidRequest(text)
    properties = _changed(dict(header.properties), edit)
    return header._replace(properties=tuple(properties.items()))


def _changed(properties: Mapping[Any, Any], edit: MessageEdit) -> dict[Any, Any]:
    for name in edit.removed:
        if name not in properties:
            names = ", ".join(map(str, properties)) or "none"
            raise InvalidRequest(f"unset {name}: the message's properties are {names}")
    kept = {name: value for name, value in properties.items() if name not in edit.removed}
    return kept | {
        name: _value(name, text, properties.get(name)) for name, text in edit.properties.items()
    }


def _value(name: str, text: str, before: Any) -> Any:
    """Read a property's new value: it is of the type that it has."""
    try:
        return _read(text, before)
    except (KeyError, TypeError, ValueError) as reason:
        kind = type(before).__name__.lower()
        message = f"property {name}={text}: its value is of type {kind}"
        raise InvalidRequest(message) from reason


def _read(text: str, before: Any) -> Any:
    if before is None or isinstance(before, str):
        return text if before is None else type(before)(text)
    if isinstance(before, bool):
        return _FLAGS[text]
    if isinstance(before, bytes):
        return type(before)(text.encode())
    if isinstance(before, UUID):
        return UUID(text)
    if isinstance(before, int | float):
        return type(before)(text)
    raise TypeError
