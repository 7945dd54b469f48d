"""A value of a Spark column as JSON, by the column's type: a body of type struct. Pure.

It is what Spark's `to_json` writes: null fields are left out, a timestamp is ISO 8601 in UTC, bytes
are Base64, a decimal keeps its digits. The writer of a type is made once, before the first row.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import types

from broker_shim.errors import InvalidRequest

JsonWriter = Callable[[Any], str]
"""Writes a value that is not null."""

_text: JsonWriter = json.JSONEncoder(ensure_ascii=False).encode


def json_writer(kind: types.DataType, column: str) -> JsonWriter:
    """Make the writer of a type.

    Args:
        kind: The column's type in Spark.
        column: Its name, for the error.

    Raises:
        InvalidRequest: JSON has no form for a value of this type.
    """
    match kind:
        case types.StructType():
            fields = [
                (field.name, f"{_text(field.name)}:", json_writer(field.dataType, column))
                for field in kind.fields
            ]
            return lambda value: _object(fields, value)
        case types.ArrayType():
            item = json_writer(kind.elementType, column)
            return lambda value: f"[{','.join(_or_null(item, element) for element in value)}]"
        case types.MapType(keyType=types.StringType()):
            item = json_writer(kind.valueType, column)
            return lambda value: _map(item, value)
        case types.DecimalType():
            return lambda value: format(value, "f")
    for plain, writer in _PLAIN.items():
        if isinstance(kind, plain):
            return writer
    message = f"column {column}: JSON has no form for {kind.simpleString()}: cast it to string"
    raise InvalidRequest(message)


def _object(fields: list[tuple[str, str, JsonWriter]], value: Mapping[str, Any]) -> str:
    parts = [name + write(value[key]) for key, name, write in fields if value.get(key) is not None]
    return f"{{{','.join(parts)}}}"


def _map(write: JsonWriter, value: Any) -> str:
    """Write a map, which Arrow gives as pairs."""
    pairs = value.items() if isinstance(value, Mapping) else value
    return f"{{{','.join(f'{_text(key)}:{_or_null(write, element)}' for key, element in pairs)}}}"


def _or_null(write: JsonWriter, value: Any) -> str:
    return "null" if value is None else write(value)


def _float(value: float) -> str:
    """Write a number, and as `to_json` does as text what JSON has no number for."""
    if math.isnan(value):
        return '"NaN"'
    if math.isinf(value):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    return repr(value)


def _timestamp(value: datetime) -> str:
    text = value.astimezone(UTC).isoformat(timespec="milliseconds")
    return f'"{text.removesuffix("+00:00")}Z"'


_PLAIN: dict[type[types.DataType], JsonWriter] = {
    types.StringType: _text,
    types.BooleanType: lambda value: "true" if value else "false",
    types.IntegralType: str,
    types.FractionalType: _float,
    types.BinaryType: lambda value: f'"{base64.b64encode(value).decode()}"',
    types.DateType: lambda value: f'"{value.isoformat()}"',
    types.TimestampType: _timestamp,
    types.TimestampNTZType: lambda value: f'"{value.isoformat(timespec="milliseconds")}"',
}
