"""Bodies in Avro, by the schema that wrote them: their types as DDL, their values as JSON.

Loaded only where such a schema is given; it needs the extra `avro`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import reduce
from io import BytesIO
from typing import Any

import fastavro
from fastavro.schema import fingerprint, to_parsing_canonical_form

from sparkstore.content.body_schemas import MapType, Type, fields_text, json_text, merged
from sparkstore.errors import InvalidRequest

_DDL = {
    "boolean": "BOOLEAN", "int": "INT", "long": "BIGINT", "float": "FLOAT", "double": "DOUBLE",
    "date": "DATE", "timestamp-millis": "TIMESTAMP", "timestamp-micros": "TIMESTAMP",
    "local-timestamp-millis": "TIMESTAMP_NTZ", "local-timestamp-micros": "TIMESTAMP_NTZ",
}  # fmt: skip
"""All others are a STRING: text as it is, bytes in hexadecimal after `0x`."""
_MARK = b"\xc3\x01"
"""A body in Avro's encoding of single objects begins so; the fingerprint of its schema follows."""


def avro_schema(text: str) -> tuple[str, Callable[[bytes], str | None]]:
    """Read a schema of a record.

    Args:
        text: The JSON of a file `.avsc`.

    Returns:
        Its fields as DDL of Spark; and what writes a body as JSON, or null if it is none of it.

    Raises:
        InvalidRequest: It is no schema of a record, or of one that contains itself.
    """
    try:
        told = json.loads(text)
        schema = fastavro.parse_schema(told)
        kind = _type_of(told, {}, "")
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
            value = fastavro.schemaless_reader(datum, schema, None)
        except Exception:  # noqa: BLE001 - a body may be anything, and the reader says it in many ways
            return None
        return None if datum.read(1) else json_text(value)

    return fields_text(kind), json_of


def _type_of(told: Any, known: dict[str, Any], space: str) -> Type | None:
    """The type of a schema; `known` has the named ones, with null for those that are open."""
    if isinstance(told, list):
        union: Type | None = reduce(merged, (_type_of(each, known, space) for each in told))
        return union
    if isinstance(told, str):
        return _of_name(told, known, space)
    match told["type"]:
        case "array":
            kind: Type | None = [_type_of(told["items"], known, space)]
        case "map":
            kind = MapType(_type_of(told["values"], known, space) or "STRING")
        case "record" | "error" | "enum" | "fixed":
            kind = _of_named(told, known, space)
        case other:
            kind = _of_logical(told) or _type_of(other, known, space)
    return kind


def _of_name(name: str, known: dict[str, Any], space: str) -> Type | None:
    if name == "null":
        return None
    found = known.get(name if "." in name else f"{space}.{name}", known.get(name, _DDL.get(name)))
    if found is known:
        raise InvalidRequest(f"the Avro record {name} contains itself: no struct has such a type")
    return found or "STRING"


def _of_named(told: dict[str, Any], known: dict[str, Any], space: str) -> Type:
    space = told.get("namespace", told["name"].rpartition(".")[0] or space)
    name = told["name"] if "." in told["name"] else f"{space}.{told['name']}"
    known[name] = known  # open: whoever finds it is inside it
    kind: Type = _of_logical(told) or "STRING"
    if "fields" in told:
        fields = {each["name"]: _type_of(each["type"], known, space) for each in told["fields"]}
        kind = {each: found or "STRING" for each, found in fields.items()} or "STRING"
    known[name] = kind
    return kind


def _of_logical(told: dict[str, Any]) -> str | None:
    logical = told.get("logicalType", "")
    if logical == "decimal":
        return f"DECIMAL({told['precision']},{told.get('scale', 0)})"
    return _DDL.get(logical) if "-" in logical or logical == "date" else None
