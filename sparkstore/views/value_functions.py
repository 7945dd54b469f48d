"""The functions `typed_properties`, `readable_body` and `body_text` for a session of Spark.

Spark calls them in its Python processes, batch by batch; whoever names none starts none. To
register them takes most of a second, so a typed query that names none does without.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyspark.sql import Column, SparkSession
from pyspark.sql.functions import from_json
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import StructType

from sparkstore.content.binary_schemas import (
    body_json,
    ddl_of,
    decoded_bodies,
    json_bodies,
    schema_of_file,
)
from sparkstore.content.body_schemas import (
    BODY_AS,
    QUEUE_SCHEMA,
    ddl_of_document,
    ddl_of_file,
    type_of,
)
from sparkstore.content.typed_values import (
    NAMES,
    body_texts,
    readable_bodies,
    typed_properties,
)

_VALUE = (
    "struct<type:string,text:string,integer:bigint,number:double,flag:boolean,moment:timestamp,"
    "bytes:binary>"
)


def register(spark: SparkSession) -> None:
    """Give a session the functions."""
    for name, function, kind in (
        ("typed_properties", _typed_properties, f"map<string,{_VALUE}>"),
        ("readable_body", _readable_body, "string"),
        ("body_text", _body_text, "string"),
        ("body_json", _body_json, "string"),
    ):
        wrapped = arrow_udf(function, kind)  # type: ignore[call-overload]  # by the hints of function
        spark.udf.register(name, wrapped)


def register_named(spark: SparkSession, statement: str) -> None:
    """Give a session the functions if a statement names one, or one that stands on them."""
    if any(name in statement.lower() for name in (*NAMES, BODY_AS, QUEUE_SCHEMA)):
        register(spark)


def _typed_properties(protocols: pa.Array, headers: pa.Array) -> pa.Array:
    return typed_properties(protocols, headers)


def _readable_body(protocols: pa.Array, message_types: pa.Array, bodies: pa.Array) -> pa.Array:
    return readable_bodies(protocols, message_types, bodies)


def _body_text(protocols: pa.Array, message_types: pa.Array, bodies: pa.Array) -> pa.Array:
    return body_texts(protocols, message_types, bodies)


def _body_json(
    protocols: pa.Array, message_types: pa.Array, bodies: pa.Array, schemas: pa.Array
) -> pa.Array:
    return body_json(protocols, message_types, bodies, schemas)


def body_as(schema: str | Path | StructType, *, message: str = "") -> Column:
    """Return a column with the bodies of messages as structs, by a schema.

    The frame has the columns `protocol`, `message_type` and `body` of a view or a stream.

    Args:
        schema: For bodies in JSON: DDL as `number BIGINT, items ARRAY<STRING>`, the path of a JSON
            Schema or of what `schema.json()` wrote, or a type of Spark. For others the path of an
            Avro schema (`.avsc`), or of what `protoc --descriptor_set_out` wrote (`.desc`).
        message: The full name of a Protobuf message, as `shop.Order`.

    Returns:
        A struct; null, or of nulls, where a body is none of this schema.

    Raises:
        InvalidRequest: The file is no such schema; what decodes it is not installed.
    """
    if isinstance(schema, Path) and (binary := schema_of_file(schema, message)) is not None:

        def decoded(bodies: pa.Array) -> pa.Array:
            return decoded_bodies(binary, bodies)

        json = arrow_udf(decoded, "string")  # type: ignore[call-overload]  # by the hints
        return from_json(json("body"), ddl_of(binary)).alias("body_as")
    kind = ddl_of_file(schema) if isinstance(schema, Path) else schema
    ddl = kind if isinstance(kind, str) else ddl_of_document(kind.jsonValue())
    type_of(ddl)

    def fitted(protocols: pa.Array, message_types: pa.Array, bodies: pa.Array) -> pa.Array:
        return json_bodies(ddl, protocols, message_types, bodies)

    text = arrow_udf(fitted, "string")  # type: ignore[call-overload]  # by the hints
    return from_json(text("protocol", "message_type", "body"), kind).alias("body_as")
