"""Schemas of JSON bodies, for the SQL function `body_as` of both engines. Pure.

A schema is Spark's DDL: `number BIGINT, items ARRAY<STRUCT<sku: STRING, pieces: INT>>`. It comes
from somebody's text, from a file of JSON (`ddl_of_file`), or from bodies (`inferred`). DuckDB gets
it as the text of a type of its own (`duckdb_structure`).

Decision: a parser of sixty lines, since DuckDB answers without the JVM that has Spark's.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import date, time
from decimal import Decimal
from functools import lru_cache, reduce
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from sparkstore.errors import InvalidRequest

BODY_AS, QUEUE_SCHEMA = "body_as", "queue_schema"
"""The functions, as SQL calls them."""

MOST_BODIES = 1000
"""A schema is inferred from so many messages at the head of a queue."""

MOST_TYPES = 10_000
"""A type has so many others in it: named twice in each other, thirty would be a billion."""

_FIRST_BODIES = """
SELECT body_text(protocol, message_type, body) AS text
FROM queue_messages
WHERE queue = {queue} AND position <= (
  SELECT max(position)
  FROM (
    SELECT position FROM queue_messages WHERE queue = {queue} ORDER BY position LIMIT {most}
  )
)
ORDER BY position
"""


class MapType(NamedTuple):
    """A map with keys of text.

    Attributes:
        value: The type of its values.
    """

    value: Type


Type = str | list[Any] | dict[str, Any] | MapType
"""A scalar by Spark's name; a list for an array; fields by name for a struct."""

_TOKEN = re.compile(r"\s*(`(?:[^`]|``)+`|'(?:[^'\\]|\\.)*'|\w+|[<>(),:])")
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*")
_DUCKDB = {
    "STRING": "VARCHAR", "BOOLEAN": "BOOLEAN", "TINYINT": "TINYINT", "BYTE": "TINYINT",
    "SMALLINT": "SMALLINT", "SHORT": "SMALLINT", "INT": "INTEGER", "INTEGER": "INTEGER",
    "BIGINT": "BIGINT", "LONG": "BIGINT", "FLOAT": "FLOAT", "REAL": "FLOAT", "DOUBLE": "DOUBLE",
    "DECIMAL": "DECIMAL", "DATE": "DATE", "TIMESTAMP": "TIMESTAMPTZ",
    "TIMESTAMP_NTZ": "TIMESTAMP",
}  # fmt: skip
_PARAMETERS = {"DECIMAL": "(10,0)"}
"""What Spark means by the name alone; DuckDB means something else."""
_OF_JSON_SCHEMA = {
    "string": "STRING",
    "integer": "BIGINT",
    "number": "DOUBLE",
    "boolean": "BOOLEAN",
}
_OF_PYTHON = {type(None): None, bool: "BOOLEAN", float: "DOUBLE", str: "STRING"}
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


def first_bodies(queue: str) -> str:
    """Write the query for the column `text` that `inferred` takes; `queue` is a literal of SQL."""
    return _FIRST_BODIES.format(queue=queue, most=MOST_BODIES)


def inferred(texts: Iterable[str | None], queue: str) -> str:
    """Infer the schema of the bodies that are JSON objects.

    A field that has several scalar types is a STRING, and so is one of which only nulls are known.

    Raises:
        InvalidRequest: None of them is a JSON object.
    """
    kind: Any = None
    for text in texts:
        value = _object_in(text)
        if value is not None:
            kind = merged(kind, _type_of(value))
    if not kind:
        message = f"no body of the first {MOST_BODIES:,} messages on queue {queue!r} is a JSON"
        raise InvalidRequest(f"{message} object: give body_as a schema, as 'number BIGINT'")
    return fields_text(kind)


def ddl_of_file(path: Path) -> str:
    """Read the schema in a file: a JSON Schema of an object, or what Spark's `schema.json()` wrote.

    Raises:
        InvalidRequest: It is not there, or none of both (`binary_schemas` has others).
    """
    try:
        document = json.loads(path.read_text())
        kind = _of_document(document)
    except OSError as reason:
        raise InvalidRequest(f"{path} cannot be read: {reason.strerror}") from reason
    except (ValueError, KeyError, TypeError, AttributeError) as reason:
        message = f"{path} is no schema: write a JSON Schema of an object, or schema.json() of a"
        raise InvalidRequest(f"{message} DataFrame ({type(reason).__name__}: {reason})") from reason
    if not isinstance(kind, dict) or not kind:
        raise InvalidRequest(f"{path} is no schema of an object with fields")
    return fields_text(kind)


def duckdb_structure(ddl: str) -> str:
    """Write a schema as DuckDB's `from_json` takes it.

    Raises:
        InvalidRequest: It is no schema.
    """
    return json.dumps(_duckdb(type_of(ddl)))


@lru_cache(maxsize=64)
def type_of(ddl: str) -> Type:
    """Read the type that a schema in DDL is.

    Raises:
        InvalidRequest: It is none.
    """
    return _Parser(ddl).whole()


def ddl_of_document(document: Any) -> str:
    """Write a type of Spark as DDL, by its `jsonValue()`.

    Raises:
        InvalidRequest: It has a type that bodies have not.
    """
    return _text(_of_document(document))


def json_text(value: Any) -> str:
    """Write a decoded body as JSON: bytes in hexadecimal, times in ISO 8601, no number as null."""
    return json.dumps(_of_json(value), allow_nan=False)


def _of_json(value: Any) -> Any:
    match value:
        case dict():
            value = {str(name): _of_json(inner) for name, inner in value.items()}
        case list() | tuple():
            value = [_of_json(inner) for inner in value]
        case bytes():
            value = f"0x{value.hex()}"
        case float() if not math.isfinite(value):
            value = None
        case date() | time():
            value = value.isoformat()
        case Decimal() | UUID():
            value = str(value)
    return value


def _object_in(text: str | None) -> dict[str, Any] | None:
    try:
        value = json.loads(text or "")
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _type_of(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _type_of(inner) for name, inner in value.items()} or None
    if isinstance(value, list):
        return [reduce(merged, map(_type_of, value), None)]
    if isinstance(value, int) and not isinstance(value, bool):
        return "BIGINT" if _LEAST <= value <= _MOST else "DOUBLE"
    return _OF_PYTHON[type(value)]


def merged(first: Any, other: Any) -> Any:
    """Return the type that values of both types fit."""
    if first is None or other is None or first == other:
        return other if first is None else first
    if isinstance(first, dict) and isinstance(other, dict):
        return {name: merged(first.get(name), other.get(name)) for name in {**first, **other}}
    if isinstance(first, list) and isinstance(other, list):
        return [merged(first[0], other[0])]
    return "DOUBLE" if {str(first), str(other)} == {"BIGINT", "DOUBLE"} else "STRING"


def bounded(kind: Type) -> Type:
    """Return a type that others are made of, counted as often as it names them.

    Raises:
        InvalidRequest: It has more than `MOST_TYPES` in it.
    """
    count, waiting = 0, [kind]
    while waiting:
        count, part = count + 1, waiting.pop()
        if count > MOST_TYPES:
            raise InvalidRequest(f"the schema has more than {MOST_TYPES:,} fields: name fewer")
        match part:
            case MapType():
                waiting.append(part.value)
            case dict():
                waiting.extend(part.values())
            case list():
                waiting.extend(part)
    return kind


def fields_text(fields: Mapping[str, Any], mark: str = " ") -> str:
    """Write fields with their types as DDL."""
    return ", ".join(f"{_name_text(name)}{mark}{_text(kind)}" for name, kind in fields.items())


def _name_text(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def _text(kind: Any) -> str:
    match kind:
        case MapType():
            return f"MAP<STRING, {_text(kind.value)}>"
        case dict():
            return f"STRUCT<{fields_text(kind, ': ')}>"
        case list():
            return f"ARRAY<{_text(kind[0])}>"
    return str(kind or "STRING")


def _of_document(document: Any) -> Type:
    if isinstance(document, str):
        return _Parser(document).kind()
    if document["type"] == "struct":
        return {inner["name"]: _of_document(inner["type"]) for inner in document["fields"]}
    if document["type"] == "array":
        items = "elementType" if "elementType" in document else "items"
        return [_of_document(document[items])]
    if document["type"] == "map":
        return MapType(_of_document(document["valueType"]))
    if document["type"] == "object":
        return {name: _of_document(inner) for name, inner in document["properties"].items()}
    return _OF_JSON_SCHEMA[document["type"]]


def _duckdb(kind: Type) -> str:
    match kind:
        case MapType():
            return f"MAP(VARCHAR, {_duckdb(kind.value)})"
        case dict():
            fields = (
                f'"{name.replace(chr(34), chr(34) * 2)}" {_duckdb(inner)}'
                for name, inner in kind.items()
            )
            return f"STRUCT({', '.join(fields)})"
        case list():
            return f"{_duckdb(kind[0])}[]"
    name, parameters = re.fullmatch(r"(\w+)(.*)", kind).groups()  # type: ignore[union-attr]
    return _DUCKDB[name] + parameters


class _Parser:
    """A schema in DDL, token by token."""

    def __init__(self, ddl: str) -> None:
        self._ddl = ddl
        self._tokens = _TOKEN.findall(ddl)
        if "".join(ddl.split()) != "".join("".join(self._tokens).split()):
            raise self._wrong()
        self._tokens.reverse()

    def whole(self) -> Type:
        """Read fields, or one type that has others in it."""
        second = self._tokens[-2] if len(self._tokens) > 1 else ""
        kind = self.kind() if second == "<" else self._fields("")
        if self._tokens:
            raise self._wrong()
        return kind

    def kind(self) -> Type:
        """Read one type, with all that is in it."""
        name = self._next().upper()
        if name == "ARRAY":
            return self._within(lambda: [self.kind()])
        if name == "MAP":
            return self._within(self._map)
        if name == "STRUCT":
            return self._within(lambda: self._fields(">"))
        if name not in _DUCKDB:
            raise self._wrong()
        return name + (self._parameters() or _PARAMETERS.get(name, ""))

    def _within(self, read: Callable[[], Type]) -> Type:
        self._expect("<")
        kind = read()
        self._expect(">")
        return kind

    def _map(self) -> MapType:
        if self.kind() != "STRING":
            raise self._wrong()
        self._expect(",")
        return MapType(self.kind())

    def _fields(self, end: str) -> dict[str, Type]:
        fields = dict[str, Type]()
        while True:
            name = self._next()
            if name.startswith("`"):
                name = name[1:-1].replace("``", "`")
            if self._peek() == ":":
                self._next()
            fields[name] = self.kind()
            if self._peek() == end:
                return fields
            self._expect(",")

    def _parameters(self) -> str:
        if self._peek() != "(":
            return ""
        text = ""
        while not text.endswith(")"):
            text += self._next()
        return text

    def _peek(self) -> str:
        return self._tokens[-1] if self._tokens else ""

    def _next(self) -> str:
        if not self._tokens:
            raise self._wrong()
        return str(self._tokens.pop())

    def _expect(self, token: str) -> None:
        if self._next() != token:
            raise self._wrong()

    def _wrong(self) -> InvalidRequest:
        message = f"{self._ddl!r} is no schema: write names and types"
        return InvalidRequest(f"{message}, as 'number BIGINT, items ARRAY<STRUCT<sku: STRING>>'")
