"""Bodies in Avro, by the schema that wrote them: their types as DDL, their values as JSON.

Loaded only where such a schema is given; it needs the extra `avro`.

Why a small body stays small: each value of a list takes a byte at least, since a schema with a list
of what takes none (`null`, a record without fields) is refused. Five bytes could say that it has
ten million. A value is a tree of the schema's types, of which there are `MOST_TYPES` at most. So a
body has so many values for each of its bytes, and commonly one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial, reduce
from io import BytesIO
from typing import Any

import fastavro
from fastavro.read import LOGICAL_READERS
from fastavro.schema import fingerprint, to_parsing_canonical_form

from sparkstore.content.body_schemas import MapType, Type, bounded, fields_text, json_text, merged
from sparkstore.errors import InvalidRequest

_DDL = {
    "boolean": "BOOLEAN", "int": "INT", "long": "BIGINT", "float": "FLOAT", "double": "DOUBLE",
    "date": "DATE", "timestamp-millis": "TIMESTAMP", "timestamp-micros": "TIMESTAMP",
    "local-timestamp-millis": "TIMESTAMP_NTZ", "local-timestamp-micros": "TIMESTAMP_NTZ",
}  # fmt: skip
"""All others are a STRING: text as it is, bytes in hexadecimal after `0x`."""
_MARK = b"\xc3\x01"
"""A body in Avro's encoding of single objects begins so; the fingerprint of its schema follows."""
_DECIMAL, _DECIMAL_BYTES = "bounded-decimal", 64
"""A decimal of more bytes is none that an engine has, and Python takes minutes for a million."""


def avro_schema(text: str) -> tuple[str, Callable[[bytes], str | None]]:
    """Read a schema of a record.

    Args:
        text: The JSON of a file `.avsc`.

    Returns:
        Its fields as DDL of Spark; and what writes a body as JSON, or null if it is none of it.

    Raises:
        InvalidRequest: It is no schema of a record; one that contains itself, is too large, or
            has an array of what takes no bytes.
    """
    try:
        document = json.loads(text)
        schema = fastavro.parse_schema(document)
        kind = _type_of(document, {}, "")
        named = schema.get("__named_schemas", {}) if isinstance(schema, dict) else {}
        _refuse_lists_of_nothing(schema, named)
        reading = fastavro.parse_schema(json.loads(text, object_hook=_with_bounded_decimal))
    except InvalidRequest:
        raise
    except Exception as reason:
        message = f"this is no Avro schema ({type(reason).__name__}: {reason})"
        raise InvalidRequest(" ".join(message.split())) from reason
    if not isinstance(kind, dict) or not kind:
        raise InvalidRequest("an Avro schema of bodies is one of a record with fields")
    prefix = _MARK + bytes.fromhex(fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO"))

    def json_of(body: bytes) -> str | None:
        datum = BytesIO(body.removeprefix(prefix))
        try:
            value = fastavro.schemaless_reader(datum, reading, None)
        except Exception:  # noqa: BLE001 - a body may be anything, and the reader says it in many ways
            return None
        return None if datum.read(1) else json_text(value)

    return fields_text(kind), json_of


def _type_of(document: Any, known: dict[str, Any], space: str) -> Type | None:
    """The type of a schema; `known` has the named ones, with null for those that are open."""
    if isinstance(document, list):
        union: Type | None = reduce(merged, (_type_of(member, known, space) for member in document))
        return union
    if isinstance(document, str):
        return _of_name(document, known, space)
    match document["type"]:
        case "array":
            kind: Type | None = [_type_of(document["items"], known, space)]
        case "map":
            kind = MapType(_type_of(document["values"], known, space) or "STRING")
        case "record" | "error" | "enum" | "fixed":
            kind = _of_named(document, known, space)
        case other:
            kind = _of_logical(document) or _type_of(other, known, space)
    return kind


def _of_name(name: str, known: dict[str, Any], space: str) -> Type | None:
    if name == "null":
        return None
    kind = known.get(name if "." in name else f"{space}.{name}", known.get(name, _DDL.get(name)))
    if kind is known:
        raise InvalidRequest(f"the Avro record {name} contains itself: no struct has such a type")
    return kind or "STRING"


def _of_named(document: dict[str, Any], known: dict[str, Any], space: str) -> Type:
    space = document.get("namespace", document["name"].rpartition(".")[0] or space)
    name = document["name"] if "." in document["name"] else f"{space}.{document['name']}"
    known[name] = known  # open: whoever finds it is inside it
    kind: Type = _of_logical(document) or "STRING"
    if "fields" in document:
        typed = ((one["name"], _type_of(one["type"], known, space)) for one in document["fields"])
        kind = bounded({name: of_field or "STRING" for name, of_field in typed}) or "STRING"
    known[name] = kind
    return kind


def _of_logical(document: dict[str, Any]) -> str | None:
    logical = document.get("logicalType", "")
    if logical == "decimal":
        return f"DECIMAL({document['precision']},{document.get('scale', 0)})"
    return _DDL.get(logical) if "-" in logical or logical == "date" else None


def _refuse_lists_of_nothing(part: Any, named: dict[str, Any]) -> None:
    if isinstance(part, dict):
        if part.get("type") == "array" and _is_empty(part["items"], named):
            message = "an Avro array of nulls or empty records: five bytes say millions of them"
            raise InvalidRequest(f"{message}. Give its items a field")
        part = [part[name] for name in ("type", "fields", "items", "values") if name in part]
    for member in part if isinstance(part, list) else ():
        _refuse_lists_of_nothing(member, named)


def _is_empty(part: Any, named: dict[str, Any]) -> bool:
    """True if a value takes no byte in a body."""
    if isinstance(part, str):
        return part == "null" or (part in named and _is_empty(named[part], named))
    if not isinstance(part, dict):
        return False  # a union says in a byte which of its types it is
    match part["type"]:
        case "record" | "error":
            return all(_is_empty(field["type"], named) for field in part["fields"])
        case "fixed":
            return not part["size"]
        case "array" | "map" | "enum":
            return False
        case inner:
            return _is_empty(inner, named)


def _with_bounded_decimal(part: dict[str, Any]) -> dict[str, Any]:
    return {**part, "logicalType": _DECIMAL} if part.get("logicalType") == "decimal" else part


def _bounded_decimal(kind: str, data: bytes, *schemas: Any) -> Any:
    if len(data) > _DECIMAL_BYTES:
        raise ValueError(f"a decimal of {len(data)} bytes")
    return LOGICAL_READERS[f"{kind}-decimal"](data, *schemas)


for _kind in ("bytes", "fixed"):
    LOGICAL_READERS[f"{_kind}-{_DECIMAL}"] = partial(_bounded_decimal, _kind)
