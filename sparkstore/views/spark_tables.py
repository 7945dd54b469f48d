"""The Delta tables of a root as Spark sees them: names for SQL, one error for Spark's many.

Foreign errors become ours here: py4j's and Spark's exceptions end in `translated`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sparkstore.errors import InvalidRequest, StoreError, Unavailable
from sparkstore.recovery.point_in_time import PointInTime
from sparkstore.sql.queries import as_of_values, statement, text
from sparkstore.tables.root import TABLES, Root

__all__ = ["delta_name", "settings", "statement", "table_names", "text", "translated"]

_GUARD_SAYS = re.compile(r"records are missing after position \d+[^\n\"']*")
"""The guard's error (`sql/fold/guard.sql`); its text without a number is in every plan."""
_GONE = re.compile(
    r"(FILE_NOT_EXIST|FileNotFoundException|No such file).*(\.parquet|_delta_log)", re.DOTALL
)
"""A data file, a checkpoint or a version of a Delta table that is not there."""


def delta_name(where: Path | str) -> str:
    """A Delta table as SQL names it. The path is one quoted identifier, never more."""
    return f"delta.`{str(where).replace('`', '``')}`"


def table_names(root: Root, point: PointInTime | None = None) -> dict[str, str]:
    """SQL names of the three tables, by their own; of a root as it stood, what was in them."""
    names = {name: delta_name(root.spark_location(name)) for name in TABLES}
    if point is None:
        return names
    if point.version is not None:
        names["state"] += f" VERSION AS OF {point.version}"
    return as_of_values(
        names,
        point.position,
        point.at,
        folded=point.folded,
        from_nothing=point.version is None,
        is_in_history=point.is_in_history,
    )


@contextmanager
def settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Give a session settings for as long as the block runs."""
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in values:
            spark.conf.unset(name)


@contextmanager
def translated(doing: str, *, is_typed: bool = False) -> Iterator[None]:
    """Turn Spark's, Delta's and the system's exceptions into ours: one line, with what was done.

    Args:
        doing: What is done.
        is_typed: Somebody typed the query; else a statement that Spark refuses is not the caller's
            fault: a table is not as it was when the statement was made.

    Raises:
        InvalidRequest: The query that was typed is wrong.
        Unavailable: The guard spoke, or Spark or the storage failed.
    """
    try:
        yield
    except StoreError:
        raise
    except (OSError, DeltaError, pa.ArrowException) as reason:
        text = _first_line(reason)
        message = f"{doing}: {text}: {_why_gone(text) or 'look at the storage'}, run it again"
        raise Unavailable(message) from reason
    except (PySparkException, Py4JError) as reason:
        if guard := _GUARD_SAYS.search(str(reason)):
            raise Unavailable(guard[0]) from reason
        message = f"{doing}: {_first_line(reason)}"
        if is_typed and _is_callers(reason):
            raise InvalidRequest(message) from reason
        why = _why_gone(_whole(reason))
        raise Unavailable(f"{message}: {why + ', ' if why else ''}run it again") from reason


def _why_gone(text: str) -> str:
    """The cause in words, if a file of a table was not there any more; else nothing."""
    if not _GONE.search(text):
        return ""
    return (
        "a newer version replaced what was read, and its files were deleted after reader_grace_s"
        " (if that is usual, raise it in the settings)"
    )


def _whole(reason: BaseException) -> str:
    """All that an error says: of the first cause, where py4j hides it."""
    return _cause(reason.java_exception) if isinstance(reason, Py4JJavaError) else str(reason)


def _first_line(reason: BaseException) -> str:
    """The first line that says something."""
    text = _whole(reason)
    lines = (line.strip() for line in text.splitlines())
    return next(filter(None, lines), type(reason).__name__)


def _cause(failure: Any) -> str:
    while failure.getCause() is not None:
        failure = failure.getCause()
    return str(failure.toString())


def _is_callers(reason: BaseException) -> bool:
    """True for a query that can never be answered; Delta's refusals are of tables that moved."""
    kind = type(reason).__name__
    return kind in {"AnalysisException", "ParseException"} and "[DELTA_" not in str(reason)
