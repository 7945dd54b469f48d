"""Schemas of bodies that are no JSON, in Avro or Protobuf, for the function `body_as`.

A body becomes JSON, and that a struct by the schema's DDL: the way that a body in JSON goes, in
both engines. A schema is given by its text or file, so it goes to the processes of Spark as it is,
and each reads it once.

Decision: Python decodes, and not Spark's packages spark-avro and spark-protobuf. DuckDB has
neither, Spark is shipped without them, and their functions may not pass the check of typed SQL.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from sparkstore.content.body_schemas import duckdb_structure, type_of
from sparkstore.content.json_bodies import fitted_json
from sparkstore.content.typed_values import body_texts
from sparkstore.errors import InvalidRequest
from sparkstore.extras import missing_extra

_AVRO, _PROTOBUF = ".avsc", {".desc", ".pb", ".protoset"}


class BinarySchema(NamedTuple):
    """A schema as somebody gave it.

    Attributes:
        source: The text of an Avro schema, or a compiled description of Protobuf messages.
        message: The name of a Protobuf message; empty with Avro.
    """

    source: str | bytes
    message: str = ""


def is_avro(text: str) -> bool:
    """True if the last argument of `body_as` is an Avro schema, and no DDL."""
    return text.lstrip().startswith("{")


def schema_of_file(path: Path, message: str = "") -> BinarySchema | None:
    """Read a schema of Avro or Protobuf; None if the file's name says that it is another one.

    Raises:
        InvalidRequest: It cannot be read; of a Protobuf message the name, or the compiled form, is
            not there.
    """
    if path.suffix == ".proto":
        message = f"{path} is source: compile it with protoc --include_imports"
        raise InvalidRequest(
            f"{message} --descriptor_set_out=FILE.desc, and give body_as FILE.desc"
        )
    if path.suffix in _PROTOBUF and not message:
        raise InvalidRequest(f"{path} has messages: give body_as one's name, message='shop.Order'")
    try:
        if path.suffix == _AVRO:
            return BinarySchema(path.read_text())
        return BinarySchema(path.read_bytes(), message) if path.suffix in _PROTOBUF else None
    except (OSError, UnicodeDecodeError) as reason:
        why = reason.strerror if isinstance(reason, OSError) else "it is no text"
        raise InvalidRequest(f"{path} cannot be read: {why}") from reason


def ddl_of(schema: BinarySchema) -> str:
    """Write the type of the bodies as DDL of Spark.

    Raises:
        InvalidRequest: It is no schema; what reads it is not installed.
    """
    return _read(schema)[0]


def decoded_bodies(schema: BinarySchema, bodies: pa.Array) -> pa.Array:
    """Write the column `body` as JSON; null where a body is none of this schema."""
    json_of = _read(schema)[1]
    rows = [None if body is None else json_of(body) for body in bodies.to_pylist()]
    return pa.array(rows, pa.string())


def body_json(
    protocols: pa.Array, message_types: pa.Array, bodies: pa.Array, schemas: pa.Array
) -> pa.Array:
    """Write bodies as JSON that has what a schema says: of Avro decoded, else read strictly.

    The arguments are the columns `protocol`, `message_type` and `body`, and one text for all.
    """
    schema = next((text for text in schemas.to_pylist() if text is not None), "")
    if is_avro(schema):
        return decoded_bodies(BinarySchema(schema), bodies)
    return json_bodies(schema, protocols, message_types, bodies)


def json_bodies(
    ddl: str, protocols: pa.Array, message_types: pa.Array, bodies: pa.Array
) -> pa.Array:
    """Write bodies that are JSON anew by a schema (`json_bodies.fitted_json`)."""
    texts = body_texts(protocols, message_types, bodies).to_pylist()
    kind = type_of(ddl)
    return pa.array([fitted_json(text, kind) for text in texts], pa.string())


def body_structure(schema: str) -> str:
    """Write the type of the bodies as DuckDB's `from_json` takes it, by DDL or an Avro schema.

    Raises:
        InvalidRequest: It is neither; what reads Avro is not installed.
    """
    return duckdb_structure(ddl_of(BinarySchema(schema)) if is_avro(schema) else schema)


@lru_cache(maxsize=64)
def _read(schema: BinarySchema) -> tuple[str, Callable[[bytes], str | None]]:
    try:
        if isinstance(schema.source, bytes):
            from sparkstore.content.protobuf_bodies import protobuf_schema  # noqa: PLC0415

            return protobuf_schema(schema.source, schema.message)
        from sparkstore.content.avro_bodies import avro_schema  # noqa: PLC0415

        return avro_schema(schema.source)
    except ModuleNotFoundError as reason:
        raise (missing_extra(reason) or reason) from reason
