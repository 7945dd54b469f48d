"""Rows of one SELECT over the views of a root that is open, by DuckDB in this process."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import NamedTuple

import duckdb
import pyarrow as pa

from sparkstore.content.body_schemas import first_bodies, inferred
from sparkstore.embedded.arrow_functions import add_text_function
from sparkstore.embedded.duckdb_views import (
    add_log,
    add_view_of,
    add_views,
    connect,
    views_of,
)
from sparkstore.embedded.moment import NOTHING, Moment
from sparkstore.embedded.plain_entries import OPERATORS, Condition, PlainEntries, Remainder
from sparkstore.embedded.typed_select import BY_SPARK, check_statement, first_line
from sparkstore.embedded.view_parts import PlainRows, ViewPart
from sparkstore.errors import InvalidRequest, Unavailable
from sparkstore.recovery.point_in_time import AsOf
from sparkstore.sql.queries import VIEWS
from sparkstore.tables.root import Root

_BATCH_ROWS = 1 << 16
_WIDE = pa.decimal128(38, 0)
_HINT = "Did you mean"
_SCAN = "arrow_scan"
_OURS = f"{InvalidRequest.__name__}: "
_CALLERS = (
    duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException, duckdb.DataError,
    duckdb.PermissionException, duckdb.InvalidInputException, duckdb.NotImplementedException,
    pa.ArrowInvalid, pa.ArrowNotImplementedError,
)  # fmt: skip
"""Errors of a query that can never be answered."""


class QueryAnswer(NamedTuple):
    """Rows of a query.

    Attributes:
        table: Its rows, no more than were asked for.
        is_cut: There are more.
    """

    table: pa.Table
    is_cut: bool


def answer(root: Root, statement: str, limit: int = 0, as_of: AsOf | None = None) -> QueryAnswer:
    """Answer one SELECT in DuckDB's SQL; limit 0 means all of its rows.

    Raises:
        InvalidRequest: The query is wrong, or asks for more than the views; `as_of` is in the
            future, or before history.
        CorruptData: A table of the root is gone.
        Unavailable: The tables cannot be read.
    """

    def queue_schema(queue: str) -> str:
        return inferred_schema(root, queue, as_of)

    views = views_of(root)
    with translated(), connect(statement) as connection:
        if queue_schema.__name__ in statement.lower():
            add_text_function(connection, queue_schema)
        named = check_statement(connection, statement, views)
        add_views(connection, root, sorted(named.views), as_of, named.columns)
        table = _rows(connection.sql(statement), limit)
    return QueryAnswer(_narrowed(table.slice(0, limit or None)), 0 < limit < table.num_rows)


def inferred_schema(root: Root, queue: str, as_of: AsOf | None = None) -> str:
    """Infer the schema of JSON bodies from the first messages on a queue, as DDL of Spark.

    Raises:
        InvalidRequest: None of them is a JSON object, or nothing waits there.
        CorruptData: A table of the root is gone.
        Unavailable: The tables cannot be read.
    """
    query = first_bodies("'" + queue.replace("'", "''") + "'")
    texts = answer(root, query, as_of=as_of).table.column("text").to_pylist()
    return inferred(texts, queue)


def view_schema(root: Root, view: str) -> pa.Schema:
    """Return the columns of a view with their types.

    Raises:
        InvalidRequest: There is no such view; the message lists those that there are.
        CorruptData: A table of the root is gone.
        Unavailable: The tables cannot be read.
    """
    if view in VIEWS:
        return _known_schema(view)
    with _one_view(root, view) as connection:
        return _schema(connection, view)


@cache
def _known_schema(view: str) -> pa.Schema:
    """Return the columns of a view that every root has."""
    with connect() as connection:
        add_view_of(connection, NOTHING, view)
        return _schema(connection, view)


def _schema(connection: duckdb.DuckDBPyConnection, view: str) -> pa.Schema:
    return connection.sql(f"SELECT * FROM {view} LIMIT 0").to_arrow_table().schema  # noqa: S608


def view_batches(
    root: Root,
    view: str,
    columns: Sequence[str],
    conditions: Sequence[Condition] = (),
    as_of: AsOf | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read some columns of a view, a batch at a time; as `view_schema` in what it raises.

    Values of conditions are parameters, and never text of the statement.
    """
    with _one_view(root, view, as_of, _asked(columns, conditions)) as connection:
        yield from _selected(connection, view, columns, conditions)


def small_view(
    root: Root, view: str, moment: Moment | None, most_bytes: int, at: int | None = None
) -> pa.Table | None:
    """Read all of a view, unless that is more than so many bytes.

    Args:
        root: Where the view is read from.
        view: One of `views_of`.
        moment: Whose tables are read; None: the view is of a table that a job writes.
        most_bytes: Of what comes from DuckDB.
        at: Of such a table, what was written up to this time counts, UTC µs; None: all.

    Raises:
        CorruptData: A table of the root is gone.
        Unavailable: The tables cannot be read.
    """
    with connect() as connection, translated():
        if moment is None:
            add_log(connection, root, view, at)
        else:
            add_view_of(connection, moment, view)
        answer = connection.execute(f"SELECT * FROM {view}")  # noqa: S608
        with answer.to_arrow_reader(_BATCH_ROWS) as reader:
            batches, size = list[pa.RecordBatch](), 0
            for batch in reader:
                batches.append(batch)
                size += batch.nbytes
                if size > most_bytes:
                    return None
            return pa.Table.from_batches(batches or [_no_row(reader.schema)], reader.schema)


def _no_row(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema)


def part_batches(
    part: ViewPart, columns: Sequence[str], conditions: Sequence[Condition] = ()
) -> Iterator[pa.RecordBatch]:
    """Read some columns of a part of a view, a batch at a time, in any process.

    The batches of all parts have each row of the view once, as of their moment. Columns of nothing
    but nulls may have Arrow's type of nulls.

    Raises:
        Unavailable: A file of that moment is gone: a newer one replaced it, and `reader_grace_s`
            is over.
    """
    with _of_moment(part.moment), translated():
        if part.rows is None:
            yield from _by_query(part, columns, conditions)
            return
        plain = PlainEntries(part.moment, columns, conditions, part.rows.ids)
        yield from _plain_batches(plain, part.rows)
        for left in (plain.left() if part.rows.has_rest else None, plain.left_of_content()):
            if left is not None:
                yield from _by_query(part, columns, conditions, left)


def _plain_batches(plain: PlainEntries, rows: PlainRows) -> Iterator[pa.RecordBatch]:
    if rows.entries:
        yield from plain.of_state(rows.entries)
    if rows.has_rest and not plain.content:
        yield from plain.of_tail()
    for name, files in (("history", rows.history), ("journal", rows.journal)):
        if files:
            yield from plain.with_content(name, files)


def _by_query(
    part: ViewPart,
    columns: Sequence[str],
    conditions: Sequence[Condition],
    left: Remainder | None = None,
) -> Iterator[pa.RecordBatch]:
    with connect() as connection:
        add_view_of(connection, part.moment, part.view, _asked(columns, conditions), left)
        yield from _selected(connection, part.view, columns, conditions)


def _asked(columns: Iterable[str], conditions: Iterable[Condition]) -> set[str]:
    return {*columns, *(condition.column for condition in conditions)}


def _selected(
    connection: duckdb.DuckDBPyConnection,
    view: str,
    columns: Sequence[str],
    conditions: Sequence[Condition],
) -> Iterator[pa.RecordBatch]:
    assert {condition.operator for condition in conditions} <= OPERATORS
    named = ", ".join(map(_quoted, columns)) or "1"
    wanted = " AND ".join(f"{_quoted(column)} {operator} ?" for column, operator, _ in conditions)
    query = f"SELECT {named} FROM {view} WHERE {wanted or 'true'}"  # noqa: S608
    answer = connection.execute(query, [condition.value for condition in conditions])
    yield from answer.to_arrow_reader(_BATCH_ROWS)


@contextmanager
def _of_moment(moment: Moment) -> Iterator[None]:
    try:
        yield
    except Unavailable as reason:
        if (lost := moment.lost_file()) is None:
            raise
        message = f"{lost.path} is gone: a newer file replaced it since this read was planned, and"
        raise Unavailable(f"{message} reader_grace_s is over: load it anew") from reason


@contextmanager
def _one_view(
    root: Root, view: str, as_of: AsOf | None = None, columns: Collection[str] | None = None
) -> Iterator[duckdb.DuckDBPyConnection]:
    views = views_of(root)
    if view not in views:
        raise InvalidRequest(f"there is no view {view!r}: there are {', '.join(views)}")
    with connect() as connection, translated():
        add_views(connection, root, [view], as_of, columns)
        yield connection


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _rows(relation: duckdb.DuckDBPyRelation, limit: int) -> pa.Table:
    """All rows, or some more than the limit: the rest is never computed."""
    batches, count = list[pa.RecordBatch](), 0
    with relation.to_arrow_reader(_BATCH_ROWS) as reader:
        for batch in reader:
            batches.append(batch)
            count += batch.num_rows
            if 0 < limit < count:
                break
        return pa.Table.from_batches(batches, reader.schema)


def _narrowed(table: pa.Table) -> pa.Table:
    """Sums and counts as BIGINT, where they fit: DuckDB's HUGEINT comes as a decimal."""
    for at, field in enumerate(table.schema):
        if field.type == _WIDE:
            with suppress(pa.ArrowInvalid):
                table = table.set_column(at, field.name, table.column(at).cast(pa.int64()))
    return table


@contextmanager
def translated() -> Iterator[None]:
    """Have errors of the engine say what the caller can do about them."""
    try:
        yield
    except (duckdb.Error, pa.ArrowException, OSError) as reason:
        message = f"the query failed: {first_line(reason)}"
        if _SCAN in str(reason):  # a file of a table: gone with a newer version, or broken
            raise Unavailable(f"{message}: look at the storage, run it again") from reason
        if isinstance(reason, _CALLERS):
            raise InvalidRequest(_failure(reason)) from reason
        raise Unavailable(f"{message}: run it again, or {BY_SPARK}") from reason


def _failure(reason: Exception) -> str:
    lines = [line.strip() for line in str(reason).splitlines()]
    hint = next((f": {line}" for line in lines if line.startswith((_HINT, "Candidate"))), "")
    text = first_line(reason)
    if _OURS in text:  # a function of ours refused its argument
        return f"the query failed: {text.partition(_OURS)[2]}"
    return f"the query failed: {text}{hint}: {BY_SPARK} answers in Spark's SQL"
