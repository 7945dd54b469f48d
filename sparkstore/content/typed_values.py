"""Typed properties and readable bodies of messages, as columns of Arrow: functions for SQL.

Both engines offer them: DuckDB calls them here, Spark in its Python processes. What the bytes of a
protocol mean is decided by the module behind the entry point `messages` of the group
`sparkstore.decoders`, which is loaded with the first message.

Decision: they are functions and no columns of the views. A column of types for each record would be
a new schema of all tables; and a column that Python computes would cost every `SELECT *`, and need
sparkstore on each machine of a cluster. As functions they serve messages of earlier releases, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import cache
from importlib.metadata import entry_points
from typing import Any

import pyarrow as pa

from sparkstore.errors import InvalidRequest

VALUE = pa.struct(
    [
        pa.field("type", pa.string()),
        pa.field("text", pa.string()),
        pa.field("integer", pa.int64()),
        pa.field("number", pa.float64()),
        pa.field("flag", pa.bool_()),
        pa.field("moment", pa.timestamp("us", tz="UTC")),
        pa.field("bytes", pa.binary()),
    ]
)
"""A value by its type in AMQP 1.0's words. What the type has no use for is null."""

PROPERTIES = pa.map_(pa.string(), VALUE)
NAMES = ("typed_properties", "readable_body", "body_text", "body_json")
"""The functions, as SQL calls them."""

_MOST = (1 << 63) - 1
_LEAST_US, _MOST_US = -62_135_596_800_000_000, 253_402_300_799_000_000


def typed_properties(protocols: pa.Array, headers: pa.Array) -> pa.Array:
    """Read the application properties of messages from their columns `protocol` and `header`."""
    properties_of = decoder().properties_of
    rows = [
        None if protocol is None or header is None else _as_rows(properties_of(protocol, header))
        for protocol, header in zip(protocols.to_pylist(), headers.to_pylist(), strict=True)
    ]
    return pa.array(rows, PROPERTIES)


def readable_bodies(protocols: pa.Array, message_types: pa.Array, bodies: pa.Array) -> pa.Array:
    """Write bodies that are values as JSON; null for those of bytes.

    The arguments are the columns `protocol`, `message_type` and `body`.
    """
    body_of: Callable[[str, str | None, bytes], str | None] = decoder().body_of
    columns = (column.to_pylist() for column in (protocols, message_types, bodies))
    rows = [
        None if protocol is None or body is None else body_of(protocol, kind, body)
        for protocol, kind, body in zip(*columns, strict=True)
    ]
    return pa.array(rows, pa.string())


def body_texts(protocols: pa.Array, message_types: pa.Array, bodies: pa.Array) -> pa.Array:
    """Write bodies as text: a text, bytes in UTF-8, and of other values their JSON.

    The arguments are the columns `protocol`, `message_type` and `body`; other bytes are null.
    """
    body_of = decoder().body_of
    columns = (column.to_pylist() for column in (protocols, message_types, bodies))
    rows = [
        None if protocol is None or body is None else _body_text(body_of, protocol, kind, body)
        for protocol, kind, body in zip(*columns, strict=True)
    ]
    return pa.array(rows, pa.string())


def _body_text(
    body_of: Callable[[str, str | None, bytes], str | None],
    protocol: str,
    kind: str | None,
    body: bytes,
) -> str | None:
    if kind == "text":
        return body.decode(errors="replace")
    text = body_of(protocol, kind, body)
    if text is not None:
        return text
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


@cache
def decoder() -> Any:
    """Load the module that knows what the bytes of each protocol's messages mean.

    Raises:
        InvalidRequest: None is installed.
    """
    for point in entry_points(group="sparkstore.decoders", name="messages"):
        return point.load()
    raise InvalidRequest("no decoder of messages is installed: pip install sparkstore again")


def _as_rows(properties: Mapping[str, tuple[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    return [(name, _fields(kind, value)) for name, (kind, value) in properties.items()]


def _fields(kind: str, value: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {"type": kind}
    match value:
        case None:
            pass
        case bool():
            fields |= {"flag": value, "text": str(value).lower()}
        case int() if kind == "timestamp":
            is_there = _LEAST_US <= value * 1000 <= _MOST_US
            fields |= {"moment": value * 1000 if is_there else None, "text": str(value)}
        case int():
            fields["integer"] = value if -_MOST - 1 <= value <= _MOST else None
            fields |= {"number": float(value), "text": str(value)}
        case float() | Decimal():
            fields |= {"number": float(value), "text": str(value)}
        case bytes():
            fields["bytes"] = value
        case _:
            fields["text"] = str(value)
    return fields
