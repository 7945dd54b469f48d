"""Answers of Spark as rows to print, for `sparkstore sql --engine spark`: queries alone."""

from __future__ import annotations

import math
from datetime import UTC
from typing import Any

from pyspark.errors import PySparkNotImplementedError
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, TimestampType, VariantType

from sparkstore.cli.queries.query_result import QueryResult, distinct
from sparkstore.errors import InvalidRequest
from sparkstore.session import local_session
from sparkstore.session_effort import effort_for
from sparkstore.tables.root import Root
from sparkstore.views import views
from sparkstore.views.spark_tables import translated


def answer_once(
    root: Root, statement: str, limit: int = 0, as_of: str | None = None
) -> QueryResult:
    """Answer a question by a Spark of its own, which gets the views that it names, and ends.

    Raises:
        InvalidRequest: See `answer`; there is no answer as of that time; no Java, or an old one.
        Unavailable: Spark failed or did not start, or the tables cannot be read.
    """
    effort = effort_for(root)
    spark = local_session(
        "sparkstore sql",
        java_options=effort.java_options,
        settings=effort.settings,
        makes_archive=True,
    )
    try:
        views.register(spark, root, views.named_in(statement), as_of=as_of)
        return answer(spark, root, statement, limit)
    finally:
        spark.stop()


def answer(spark: SparkSession, root: Root, statement: str, limit: int = 0) -> QueryResult:
    """Return the rows that a query over the registered views finds; limit 0 means all of them.

    Raises:
        InvalidRequest: It is not SQL, names what is not there, or asks for more than the views.
        Unavailable: Spark failed; the views' guard found that records were moved meanwhile.
    """
    with translated("the query failed", is_typed=True):
        frame = views.ask(spark, root, statement)
        kind = frame.schema
        try:
            collected = (frame.limit(limit + 1) if limit else frame).collect()
        except (ValueError, OverflowError, PySparkNotImplementedError) as reason:
            message = f"a value of the answer has no form here ({reason}): make it a string(…)"
            raise InvalidRequest(message) from reason
    is_cut = 0 < limit < len(collected)
    rows = [_fields(row, kind) for row in collected[: limit or None]]
    types = [field.dataType.simpleString() for field in kind.fields]
    return QueryResult(distinct(kind.names), rows, is_cut, types)


def _plain(value: Any, kind: DataType) -> Any:
    """A value as JSON or a table can hold it: exact, its times in UTC."""
    if value is None:
        return None
    if isinstance(kind, StructType | ArrayType | MapType):
        return _nested(value, kind)
    if isinstance(kind, TimestampType):  # PySpark gives it in the machine's time zone
        return value.astimezone(UTC)
    if isinstance(kind, VariantType):
        return value.toPython()
    if isinstance(value, float) and not math.isfinite(value):  # JSON has no number for it
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _nested(value: Any, kind: StructType | ArrayType | MapType) -> Any:
    if isinstance(kind, StructType):
        return _fields(value, kind)
    if isinstance(kind, ArrayType):
        return [_plain(item, kind.elementType) for item in value]
    return {
        str(_plain(key, kind.keyType)): _plain(item, kind.valueType) for key, item in value.items()
    }


def _fields(row: Any, kind: StructType) -> dict[str, Any]:
    types = (field.dataType for field in kind.fields)
    return dict(zip(distinct(kind.names), map(_plain, row, types), strict=True))
