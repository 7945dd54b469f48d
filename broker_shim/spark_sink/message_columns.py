"""Rows of Spark as messages of AMQP 1.0: columns by their names, types as they are. Pure.

    body              binary: a data section · string: an AMQP value, text · struct: JSON, in a data
                      section with content type application/json
    properties        map of strings · struct, whose fields keep their types: the application
                      properties
    durable priority ttl                                          of the header section
    message_id (or amqp_message_id) correlation_id user_id to subject reply_to content_type
    content_encoding expires_at created_at group_id group_sequence
                                                                  of the properties section
    app_id            an application property, as 0-10 has it
    routing_key       where an exchange sends it; no part of the message

The names are those of the view `queue_messages`. A message is encoded, and then read by what reads
those that come over the wire: so its columns are what they would be for any sender.

What the schema cannot be is refused before the first row, and what a row cannot be with its reason.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from pyspark.sql import types

from broker_shim.amqp_1_0.composites import Header, Properties
from broker_shim.amqp_1_0.definitions import (
    AMQP_VALUE_SECTION,
    APPLICATION_PROPERTIES_SECTION,
    DATA_SECTION,
)
from broker_shim.amqp_1_0.primitives import Timestamp, ULong
from broker_shim.errors import InvalidRequest
from broker_shim.listener_1_0.messages.message import MAX_PRIORITY, parse
from broker_shim.protocol_1_0.codec.composites import encoded_composite
from broker_shim.protocol_1_0.codec.encoder import (
    BY_KIND,
    UNWRITABLE,
    described,
    mapped,
    write,
)
from broker_shim.protocol_1_0.codec.errors import DecodeError, InvalidCommand
from broker_shim.spark_sink.json_text import json_writer
from sparkstore.core.records import MessageHeader

_Convert = Callable[[Any], Any]
_MAX_UINT = (1 << 32) - 1
_EPOCH, _MILLISECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)
_JSON = "application/json"
_APP_ID = "x-amqp-0-10.app-id"
_TEXT, _BINARY = types.StringType, types.BinaryType


class RowRefused(Exception):
    """A row cannot be a message; the text says why."""


class RowMessage(NamedTuple):
    """A row as a message.

    Attributes:
        header: All of the message but its body.
        body: The content of the message.
        routing_key: Where an exchange is to send it; None: the row does not say.
    """

    header: MessageHeader
    body: bytes
    routing_key: str | None


class _Field(NamedTuple):
    """A column that is a field of a section.

    Attributes:
        name: The field in the class of its section.
        types: The types of Spark that it may have.
        convert: Makes a value of AMQP; it raises ValueError with a reason.
    """

    name: str
    types: tuple[type[types.DataType], ...]
    convert: _Convert


def _within(most: int) -> _Convert:
    def check(value: int) -> int:
        if not 0 <= value <= most:
            message = f"{value} is not from 0 to {most}"
            raise ValueError(message)
        return value

    return check


def _id(value: Any) -> Any:
    return ULong(value) if isinstance(value, int) else value


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _milliseconds(value: Any) -> Timestamp:
    return Timestamp((value - _EPOCH) // _MILLISECOND)


def _same(value: Any) -> Any:
    return value


_IDS = (_TEXT, _BINARY, types.LongType)
_HEADER: dict[str, _Field] = {
    "durable": _Field("durable", (types.BooleanType,), _same),
    "priority": _Field("priority", (types.IntegralType,), _within(MAX_PRIORITY)),
    "ttl": _Field("ttl", (types.IntegralType,), _within(_MAX_UINT)),
}
_PROPERTIES: dict[str, _Field] = {
    "message_id": _Field("message_id", _IDS, _id),
    "amqp_message_id": _Field("message_id", _IDS, _id),
    "correlation_id": _Field("correlation_id", _IDS, _id),
    "user_id": _Field("user_id", (_TEXT, _BINARY), _bytes),
    **{
        name: _Field(name, (_TEXT,), _same)
        for name in (
            *("to", "subject", "reply_to"),
            *("content_type", "content_encoding", "group_id"),
        )
    },
    "expires_at": _Field("absolute_expiry_time", (types.TimestampType,), _milliseconds),
    "created_at": _Field("creation_time", (types.TimestampType,), _milliseconds),
    "group_sequence": _Field("group_sequence", (types.IntegralType,), _within(_MAX_UINT)),
}
_TEXTS = ("app_id", "routing_key")
COLUMNS = ("body", "properties", *_HEADER, *_PROPERTIES, *_TEXTS)
"""Names that a column of a write may have."""
_KINDS: dict[type[types.DataType], tuple[str, _Convert]] = {
    types.BooleanType: ("boolean", _same),
    types.ByteType: ("byte", _same),
    types.ShortType: ("short", _same),
    types.IntegerType: ("int", _same),
    types.LongType: ("long", _same),
    types.FloatType: ("float", _same),
    types.DoubleType: ("double", _same),
    types.StringType: ("string", _same),
    types.BinaryType: ("binary", _same),
    types.TimestampType: ("timestamp", _milliseconds),
    types.DateType: ("string", lambda value: value.isoformat()),
}
"""The type in AMQP of a property, by its type in Spark."""


class MessageColumns:
    """Makes messages of rows of one schema."""

    def __init__(self, schema: types.StructType) -> None:
        """Check the schema of the rows.

        Raises:
            InvalidRequest: It has no body, a column that is none of a message, or one of a type
                that its field cannot have.
        """
        by_name = {field.name: field.dataType for field in schema.fields}
        _check_names([field.name for field in schema.fields])
        places = {field.name: place for place, field in enumerate(schema.fields)}
        self._body = places["body"]
        self._write_body, is_json = _body_writer(by_name["body"])
        self._default_type = _JSON if is_json else None
        self._entries: _Convert | None = None
        if "properties" in places:
            self._entries = _properties_writer(by_name["properties"])
        self._map = places.get("properties", -1)
        self._header = _fields_of(_HEADER, by_name, places)
        self._fields = _fields_of(_PROPERTIES, by_name, places)
        for name in _TEXTS:
            _check_type(name, (_TEXT,), by_name.get(name))
        self._app_id, self._routing_key = (places.get(name, -1) for name in _TEXTS)

    def message(self, row: Sequence[Any], now_us: int) -> RowMessage:
        """Make the message of a row.

        Args:
            row: A value for each column, in the order of the schema, as Arrow gives it.
            now_us: When it is written, UTC µs: a time to live counts from here.

        Raises:
            RowRefused: A row like this cannot be a message.
        """
        body = row[self._body]
        if body is None:
            raise RowRefused("it has no body: body is null")
        fields = _values(self._fields, row)
        if self._default_type is not None:
            fields.setdefault("content_type", self._default_type)
        try:
            encoded = b"".join(
                (
                    _header_section(tuple(_values(self._header, row).items())),
                    _properties_section(tuple(fields.items())) if fields else b"",
                    self._application_properties(row),
                    self._write_body(body),
                )
            )
            header, content = parse(encoded, now_us=now_us)
        except (InvalidCommand, DecodeError, *UNWRITABLE) as reason:
            message = f"it is no message of AMQP 1.0: {reason}"
            raise RowRefused(message) from reason
        key = row[self._routing_key] if self._routing_key >= 0 else None
        return RowMessage(header, content, key)

    def _application_properties(self, row: Sequence[Any]) -> bytes:
        properties = row[self._map] if self._entries is not None else None
        entries = [] if properties is None or self._entries is None else self._entries(properties)
        if self._app_id >= 0 and row[self._app_id] is not None:
            entries.append(write(_APP_ID) + write(row[self._app_id]))
        return described(APPLICATION_PROPERTIES_SECTION, mapped(entries)) if entries else b""


_Bound = list[tuple[str, int, _Field]]


def _check_names(names: Sequence[str]) -> None:
    for name in names:
        if name not in COLUMNS:
            near = difflib.get_close_matches(name, COLUMNS, 1, 0)
            message = (
                f"column {name!r} is not one of a message (is {near[0]!r} meant?): rename it, drop"
                f" it, or put it into properties; columns are {', '.join(COLUMNS)}"
            )
            raise InvalidRequest(message)
        if names.count(name) > 1:
            message = f"column {name!r} is there twice"
            raise InvalidRequest(message)
    if "body" not in names:
        message = f"no column is named body, among {', '.join(names)}: name the message's content"
        raise InvalidRequest(message)
    if "message_id" in names and "amqp_message_id" in names:
        raise InvalidRequest("message_id and amqp_message_id are one field of a message: drop one")


def _check_type(
    name: str, allowed: tuple[type[types.DataType], ...], actual: types.DataType | None
) -> None:
    if actual is None or isinstance(actual, allowed):
        return
    listed = " or ".join(kind.__name__.removesuffix("Type").lower() for kind in allowed)
    message = f"column {name} is of type {actual.simpleString()}: it must be {listed}"
    raise InvalidRequest(message.replace("integral", "an integer"))


def _fields_of(
    known: dict[str, _Field], by_name: dict[str, types.DataType], places: dict[str, int]
) -> _Bound:
    bound = []
    for name, field in known.items():
        if name in places:
            _check_type(name, field.types, by_name[name])
            bound.append((name, places[name], field))
    return bound


def _values(bound: _Bound, row: Sequence[Any]) -> dict[str, Any]:
    """The fields that a row sets. Raises RowRefused if a value cannot be that of its field."""
    values = {}
    for name, place, field in bound:
        value = row[place]
        if value is None:
            continue
        try:
            values[field.name] = field.convert(value)
        except (ValueError, OverflowError, UnicodeError) as reason:
            message = f"{name}: {reason}"
            raise RowRefused(message) from reason
    return values


@lru_cache(maxsize=1 << 10)
def _header_section(fields: tuple[tuple[str, Any], ...]) -> bytes:
    """A header section; most rows of a write have the same."""
    return encoded_composite(Header(**{"durable": True, **dict(fields)}))


@lru_cache(maxsize=1 << 10)
def _properties_section(fields: tuple[tuple[str, Any], ...]) -> bytes:
    return encoded_composite(Properties(**dict(fields)))


def _body_writer(kind: types.DataType) -> tuple[Callable[[Any], bytes], bool]:
    """Make the writer of the body's section, and tell whether it writes JSON."""
    binary, text = BY_KIND["binary"], BY_KIND["string"]
    if isinstance(kind, _BINARY):
        return lambda value: described(DATA_SECTION, binary(value)), False
    if isinstance(kind, _TEXT):
        return lambda value: described(AMQP_VALUE_SECTION, text(value)), False
    if isinstance(kind, types.StructType):
        as_json = json_writer(kind, "body")
        return lambda value: described(DATA_SECTION, binary(as_json(value).encode())), True
    message = (
        f"column body is of type {kind.simpleString()}: it must be binary, string or a struct"
        " (cast it, or use to_json)"
    )
    raise InvalidRequest(message)


def _properties_writer(kind: types.DataType) -> _Convert:
    """Make the writer of the entries of application properties; nulls are left out."""
    if isinstance(kind, types.StructType):
        fields = [
            (field.name, BY_KIND["string"](field.name), *_property(field.name, field.dataType))
            for field in kind.fields
        ]
        return lambda value: [
            name + writer(convert(value[key]))
            for key, name, writer, convert in fields
            if value.get(key) is not None
        ]
    if isinstance(kind, types.MapType) and isinstance(kind.keyType, _TEXT):
        text, (item, convert) = BY_KIND["string"], _property("a value", kind.valueType)
        return lambda value: [
            text(key) + item(convert(one)) for key, one in _pairs(value) if one is not None
        ]
    message = (
        f"column properties is of type {kind.simpleString()}: it must be a map with string keys,"
        " or a struct"
    )
    raise InvalidRequest(message)


def _property(name: str, kind: types.DataType) -> tuple[Callable[[Any], bytes], _Convert]:
    """The writer of a property of this type, and what makes the value that it writes."""
    for known, (word, convert) in _KINDS.items():
        if isinstance(kind, known):
            return BY_KIND[word], convert
    message = (
        f"column properties: {name} is of type {kind.simpleString()}, which no application"
        " property can be: cast it to string"
    )
    raise InvalidRequest(message)


def _pairs(value: Any) -> Iterable[tuple[str, Any]]:
    """The entries of a map, which Arrow gives as pairs."""
    return value.items() if isinstance(value, dict) else value
