"""Messages of other protocols as AMQP 0-10 shows them, and those of 0-10 for other protocols."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from broker_shim.amqp_0_10 import primitives as p
from broker_shim.framing.errors import RemoteCommandError
from broker_shim.framing.segments import HeaderSegment
from broker_shim.messages.neutral import MessageIdentity, NeutralHeader, NeutralValue
from broker_shim.store.interface import MessageHeader

_KINDS: dict[type, str] = {
    bool: "boolean",
    p.Int8: "byte",
    p.Int16: "short",
    p.Int32: "int",
    int: "long",
    p.Uint8: "ubyte",
    p.Uint16: "ushort",
    p.Uint32: "uint",
    p.Uint64: "ulong",
    p.Float: "float",
    float: "double",
    p.Utf32Char: "char",
    p.Datetime: "timestamp",
    UUID: "uuid",
    bytes: "binary",
    str: "string",
}
_CLASSES = {kind: cls for cls, kind in _KINDS.items()}
_ALSO: dict[type, str] = {
    p.Latin1Char: "char",
    p.Str8: "string",
    p.Str8Latin: "string",
    p.Str8Utf16: "string",
    p.Str16Latin: "string",
    p.Str16Utf16: "string",
    p.Vbin8: "binary",
    p.Vbin16: "binary",
}
_BASES: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("float", "double"), float),
    **dict.fromkeys(("char", "string"), str),
    "binary": bytes,
    "boolean": bool,
    "uuid": lambda value: value,
}


def neutral_header(header: MessageHeader) -> NeutralHeader:
    """Show a message of AMQP 0-10 to other protocols."""
    try:
        message = HeaderSegment(bytes(header.header or b"")).message
    except RemoteCommandError:  # it was read when it came: only a damaged root has one
        return NeutralHeader()
    properties = {
        name: neutral
        for name, value in (message.application_headers or {}).items()
        if (neutral := _neutral(value)) is not None
    }
    return NeutralHeader(
        message.message_id, _identity(message.correlation_id), message.user_id, properties
    )


def application_headers(properties: NeutralHeader) -> dict[str, Any]:
    """Properties of any protocol as application headers: names of up to 255 bytes."""
    return {
        name: _value(value)
        for name, value in properties.properties.items()
        if len(name.encode()) <= 255
    }


def _identity(content: bytes | None) -> MessageIdentity:
    """A correlation id: text, as nearly all of them are, or bytes."""
    try:
        return None if content is None else str(content, "utf-8")
    except UnicodeDecodeError:
        return content


def _neutral(value: Any) -> NeutralValue | None:
    if value is None:
        return NeutralValue("null", None)
    kind = _KINDS.get(type(value)) or _ALSO.get(type(value))
    if kind is None:
        return None
    plain = _BASES.get(kind, int)(value)
    return NeutralValue(kind, plain * 1000 if kind == "timestamp" else plain)


def _value(value: NeutralValue) -> Any:
    if value.kind == "timestamp":
        return p.Datetime(max(0, value.value // 1000))
    cls = _CLASSES.get(value.kind, str)
    return value.value if cls is UUID else cls(value.value)
