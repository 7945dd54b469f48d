"""The functions `typed_properties` and `readable_body` for a session of Spark.

Spark calls them in its Python processes, batch by batch; whoever names neither starts none. To
register them takes most of a second, so a typed query that names neither does without.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.functions import arrow_udf

from sparkstore.content.typed_values import NAMES, readable_bodies, typed_properties

_VALUE = (
    "struct<type:string,text:string,integer:bigint,number:double,flag:boolean,moment:timestamp,"
    "bytes:binary>"
)


def register(spark: SparkSession) -> None:
    """Give a session the functions."""
    for name, function, kind in (
        ("typed_properties", _typed_properties, f"map<string,{_VALUE}>"),
        ("readable_body", _readable_body, "string"),
    ):
        told = arrow_udf(function, kind)  # type: ignore[call-overload]  # by the hints of function
        spark.udf.register(name, told)


def register_named(spark: SparkSession, statement: str) -> None:
    """Give a session the functions if a statement names one."""
    if any(name in statement.lower() for name in NAMES):
        register(spark)


def _typed_properties(protocols: pa.Array, headers: pa.Array) -> pa.Array:
    return typed_properties(protocols, headers)


def _readable_body(protocols: pa.Array, message_types: pa.Array, bodies: pa.Array) -> pa.Array:
    return readable_bodies(protocols, message_types, bodies)
