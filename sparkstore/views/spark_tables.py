"""The Delta tables of a root as Spark sees them: names for SQL, one error for Spark's many.

Foreign errors become ours here: py4j's and Spark's exceptions end in `translated`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sparkstore.core.fold import WINDOW
from sparkstore.errors import InvalidRequest, StoreError, Unavailable
from sparkstore.tables.root import TABLES, Root

_PLACEHOLDER = re.compile(r"\{([a-z]+)\}")
_GUARD_SAYS = re.compile(r"records are missing after position \d+[^\n\"']*")
"""The guard's error (`sql/fold/guard.sql`); its text without a number is in every plan."""
_GONE = re.compile(
    r"(FILE_NOT_EXIST|FileNotFoundException|No such file).*(\.parquet|_delta_log)", re.DOTALL
)
"""A data file, a checkpoint or a version of a Delta table that is not there."""


def delta_name(where: Path | str) -> str:
    """A Delta table as SQL names it. The path is one quoted identifier, never more."""
    return f"delta.`{str(where).replace('`', '``')}`"


def table_names(root: Root) -> dict[str, str]:
    """SQL names of the three tables, by their own."""
    return {name: delta_name(root.spark_location(name)) for name in TABLES}


_ONCE = frozenset({"changes", "guard", "touched_links"})
"""Steps that are computed once in a query, however often they are named."""

GUARD = "(SELECT whole FROM guard)"
_DEFAULTS = {
    "touchedhint": "",
    "entryhint": "",
    "least": "0",
    "entriesguard": GUARD,
    "membersguard": GUARD,
    "eventsguard": "true",
    "contentsguard": "true",
    "window": str(WINDOW),
    "opening": "opening",
}
"""Hints to the optimiser, which whoever knows sizes fills in (`join_hints`), and where the guard
stands: once in a query, since all of it reads each table at one version."""

_CALLED = {
    "fold_tail": "tail",
    "counted": "changes",
    "none_dropped": "dropped",
    "none_forgotten": "forgotten",
}
"""What a step is called by those that name it, if not by its file."""


def text(query: str, steps: Sequence[str], values: Mapping[str, str]) -> str:
    """The query of this name in `sql/`, after the steps that it and they name, one file each.

    `{placeholders}` in them are filled in from `values`.

    Decision: a step in `_ONCE` gets a condition that is always true and not deterministic. Spark
    writes a deterministic step out at each place that names it; `queues` was 240 operators and 40
    scans, and took 16 s to plan. One that is not deterministic is computed once, behind a
    shuffle, and what it computed is used again. So these steps are small beside what they are
    made of: a row for each entry, not for each record, and never a body. Of a step that names
    another of them, all columns must be needed always: Spark 4.2 leaves an invalid plan behind
    when it takes a column away there.

    Raises:
        KeyError: A placeholder has no value: a bug.
    """
    named = ",\n".join(f"{_CALLED.get(step, step)} AS (\n{_step(step, values)})" for step in steps)
    return f"WITH {named}\n{_filled_in(query, values)}"


def statement(name: str, values: Mapping[str, str]) -> str:
    """The statement of this name in `sql/`, filled in."""
    return _filled_in(name, values)


def _step(name: str, values: Mapping[str, str]) -> str:
    written = _filled_in(name, values)
    if name not in _ONCE:
        return written
    return f"SELECT * FROM (\n{written}) WHERE rand() >= 0\n"  # noqa: S608


@cache
def _files() -> Mapping[str, Traversable]:
    """Every query by its name, whichever folder of `sql/` it is in."""
    folders = files("sparkstore").joinpath("sql").iterdir()
    return {file.name.removesuffix(".sql"): file for each in folders for file in each.iterdir()}


def _filled_in(name: str, values: Mapping[str, str]) -> str:
    written = _files()[name].read_text(encoding="utf-8")
    known = _DEFAULTS | dict(values)
    return _PLACEHOLDER.sub(lambda found: known[found[1]], written)


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
