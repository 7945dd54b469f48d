"""Bodies in Protobuf, by a compiled description: their types as DDL, their values as JSON.

Loaded only where such a description is given; it needs the extra `protobuf`. A value takes a byte
of its body at least; the fields of a message that it leaves out are `MOST_TYPES` at most.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from sparkstore.content.body_schemas import MapType, Type, bounded, fields_text, json_text
from sparkstore.errors import InvalidRequest

_DDL = {
    FieldDescriptor.CPPTYPE_INT32: "INT", FieldDescriptor.CPPTYPE_UINT32: "BIGINT",
    FieldDescriptor.CPPTYPE_INT64: "BIGINT", FieldDescriptor.CPPTYPE_UINT64: "DECIMAL(20,0)",
    FieldDescriptor.CPPTYPE_FLOAT: "FLOAT", FieldDescriptor.CPPTYPE_DOUBLE: "DOUBLE",
    FieldDescriptor.CPPTYPE_BOOL: "BOOLEAN",
}  # fmt: skip
"""All others are a STRING: text, the name of an enum's value, bytes in hexadecimal after `0x`."""
_TIMESTAMP = "google.protobuf.Timestamp"
_DEPTH = 100


def protobuf_schema(described: bytes, message: str) -> tuple[str, Callable[[bytes], str | None]]:
    """Read the description of a message.

    Args:
        described: What `protoc --include_imports --descriptor_set_out` wrote.
        message: Its full name, as `shop.Order`.

    Returns:
        Its fields as DDL of Spark; and what writes a body as JSON, or null if it is none of it.

    Raises:
        InvalidRequest: It is no such description, has no such message, or one that contains
            itself or is too large.
    """
    pool, names = DescriptorPool(), list[str]()
    try:
        for file in FileDescriptorSet.FromString(described).file:
            pool.Add(file)
            space = f"{file.package}." if file.package else ""
            names += [f"{space}{kind.name}" for kind in file.message_type]
    except (DecodeError, TypeError) as reason:
        message = "this is no description of messages: write one with protoc --include_imports"
        raise InvalidRequest(f"{message} --descriptor_set_out=FILE") from reason
    try:
        descriptor = pool.FindMessageTypeByName(message)
    except KeyError as reason:
        listed = ", ".join(names) or "none"
        raise InvalidRequest(f"there is no message {message!r} in it: {listed}") from reason
    kind, parsed = _type_of(descriptor, ()), GetMessageClass(descriptor)
    if not isinstance(kind, dict):
        raise InvalidRequest(f"the message {message} has no fields")

    def json_of(body: bytes) -> str | None:
        try:
            return json_text(_value_of(parsed.FromString(body)))
        except (DecodeError, ValueError):  # a time may be none that there is
            return None

    return fields_text(kind), json_of


def _type_of(described: Any, within: tuple[str, ...]) -> Type:
    name = described.full_name
    if name in within:
        raise InvalidRequest(f"the message {name} contains itself: no struct has such a type")
    if len(within) == _DEPTH:
        message = f"{name} is within {_DEPTH} other messages: Protobuf reads no deeper"
        raise InvalidRequest(message)
    if name == _TIMESTAMP:
        return "TIMESTAMP"
    fields = {field.name: _field_type(field, (*within, name)) for field in described.fields}
    return bounded(fields) or "STRING"


def _field_type(field: Any, within: tuple[str, ...]) -> Type:
    if _is_map(field):
        return MapType(_field_type(field.message_type.fields_by_name["value"], within))
    if field.message_type is not None:
        kind: Type = _type_of(field.message_type, within)
    else:
        kind = _DDL.get(field.cpp_type, "STRING")
    return [kind] if field.is_repeated else kind


def _value_of(message: Any) -> Any:
    if message.DESCRIPTOR.full_name == _TIMESTAMP:
        return message.ToJsonString()
    return {field.name: _field_value(message, field) for field in message.DESCRIPTOR.fields}


def _field_value(message: Any, field: Any) -> Any:
    value = getattr(message, field.name)
    if _is_map(field):
        inner = field.message_type.fields_by_name["value"]
        return {_key(key): _one_value(inner, item) for key, item in value.items()}
    if field.is_repeated:
        return [_one_value(field, item) for item in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _one_value(field, value)


def _one_value(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return _value_of(value)
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return str(value) if named is None else named.name
    return value


def _key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _is_map(field: Any) -> bool:
    kind = field.message_type
    return kind is not None and kind.GetOptions().map_entry
