"""A connection of DuckDB that has the views of one root, as they are at one moment, and no more.

Decision: a connection is one moment. deltalake's logs say which files a table has, in the order in
which recovery reads them (state, journal, history: records move the other way), and Arrow reads
those files, each time and only the columns and positions that a query wants. What moved between the
three looks shows as a gap after P, and then all three are looked up again. Rejected: DuckDB's
extension for Delta, which is a download at run time and looks each table up by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from sparkstore.embedded.arrow_functions import add_named_functions
from sparkstore.embedded.moment import Moment, looked_up
from sparkstore.embedded.plain_entries import Remainder
from sparkstore.errors import CorruptData, Unavailable
from sparkstore.recovery.point_in_time import AsOf, PointInTime
from sparkstore.sql.dialect import events_text, tail_text, view_text
from sparkstore.sql.duckdb_connection import connected
from sparkstore.sql.queries import CONTENT, LOGS, VIEWS, as_of_values, log_as_of, statement
from sparkstore.tables.delta_files import versions
from sparkstore.tables.root import Root

_TRIES = 5
_STATE, _JOURNAL, _HISTORY = "sparkstore_state", "sparkstore_journal", "sparkstore_history"
_ROWS = ("journal", "history")
_NAMES = {"state": _STATE, "journal": _JOURNAL, "history": _HISTORY}


def views_of(root: Root) -> list[str]:
    """List the views that a root has now."""
    return [*VIEWS, *(name for name in LOGS if versions(root.table(name)))]


def connect(statement: str = "") -> duckdb.DuckDBPyConnection:
    """Open a connection that can parse, and reach nothing; with the functions that are named.

    Raises:
        InvalidRequest: The current folder was deleted: DuckDB would end the process.
    """
    connection = connected()
    add_named_functions(connection, statement)
    return connection


def add_views(
    connection: duckdb.DuckDBPyConnection,
    root: Root,
    views: Collection[str],
    as_of: AsOf | None = None,
    columns: Collection[str] | None = None,
) -> None:
    """Give a connection some views of a root, and take away its right to change its settings.

    With `as_of` they are as they stood then (`recovery.point_in_time`). With `columns` only these
    are right: others of `queue_messages` may be null.

    Raises:
        InvalidRequest: `as_of` is in the future, or before history.
        CorruptData: A table is gone or has no Delta log, or its file is.
        Unavailable: Records are missing after P, or tables moved on again and again.
    """
    with _readable(root):
        point = None
        if as_of is not None or not {*views}.isdisjoint(VIEWS):
            point = _add_queues(connection, root, views, as_of, columns)
        for name in views:
            if name in LOGS:
                add_log(connection, root, name, None if point is None else point.at)
    connection.execute("SET lock_configuration = true")


def add_events(connection: duckdb.DuckDBPyConnection, root: Root) -> Moment:
    """Give a connection `sparkstore_events`, every record that counts; the moment it is of.

    The tables are there by their own names, too, as of that moment.

    Raises:
        CorruptData: A table is gone or has no Delta log, or its file is.
        Unavailable: Records are missing after P, or tables moved on again and again.
    """
    with _readable(root):
        moment = _at_one_moment(connection, root, None)
        connection.execute(f"CREATE VIEW sparkstore_events AS {events_text(_values(moment))}")
    connection.execute("SET lock_configuration = true")
    return moment


def moment_of(root: Root, as_of: AsOf | PointInTime | None = None) -> Moment:
    """Look the tables up at one moment; as `add_views` in what it raises."""
    with _readable(root), connect() as connection:
        return _at_one_moment(connection, root, as_of)


def add_view_of(
    connection: duckdb.DuckDBPyConnection,
    moment: Moment,
    view: str,
    columns: Collection[str] | None = None,
    left: Remainder | None = None,
) -> None:
    """Give a connection one view of a moment in which no records are missing (`moment_of`).

    Args:
        connection: Its settings cannot be changed any more.
        moment: Whose tables are read.
        view: One of `VIEWS`.
        columns: Only these are right; None: all.
        left: Only these messages are there.
    """
    tables = moment.tables()
    if left is not None:
        of_none = ds.field("message_id").is_null()
        rows = {name: tables[name].filter(of_none | left.messages) for name in _ROWS}
        state = tables["state"].filter((ds.field("part") == "meta") | left.entries)
        tables = {"state": state, **rows}
    _register(connection, tables)
    _create_views(connection, moment, [view], columns)
    connection.execute("SET lock_configuration = true")


@contextmanager
def _readable(root: Root) -> Iterator[None]:
    try:
        yield
    except (DeltaError, pa.ArrowException, OSError, duckdb.Error) as reason:
        why = str(reason).splitlines()[0]
        message = f"{root.path} cannot be read: {why}: look at the storage, run it again"
        raise Unavailable(message) from reason


def add_log(connection: duckdb.DuckDBPyConnection, root: Root, name: str, at: int | None) -> None:
    """Give a connection the view of a table that a job writes, up to a time, UTC µs; None: all."""
    table = f"sparkstore_{name}"
    connection.register(table, DeltaTable(str(root.table(name))).to_pyarrow_dataset())
    query = statement(name, {"table": table if at is None else log_as_of(name, table, at)})
    connection.execute(f"CREATE VIEW {name} AS {query.replace('`', chr(34))}")


def _add_queues(
    connection: duckdb.DuckDBPyConnection,
    root: Root,
    views: Collection[str],
    as_of: AsOf | None,
    columns: Collection[str] | None,
) -> PointInTime | None:
    moment = _at_one_moment(connection, root, as_of)
    _create_views(connection, moment, views, columns)
    return moment.point


def _create_views(
    connection: duckdb.DuckDBPyConnection,
    moment: Moment,
    views: Collection[str],
    columns: Collection[str] | None,
) -> None:
    values = _values(moment)
    for view in views:
        if view in VIEWS:
            alone = view == "queue_messages" and columns is not None and CONTENT.isdisjoint(columns)
            has_body = columns is None or "body" in columns
            query = view_text(view, values, has_content=not alone, has_body=has_body)
            connection.execute(f"CREATE VIEW {view} AS {query}")


def _at_one_moment(
    connection: duckdb.DuckDBPyConnection, root: Root, as_of: AsOf | PointInTime | None
) -> Moment:
    """Look the tables up until there is no gap between state and the records after it."""
    failure: Exception | None = None
    for _ in range(_TRIES):
        try:
            moment = looked_up(root, as_of)
            _register(connection, moment.tables())
            _check_no_gap(connection, moment)
        except (CorruptData, DeltaError, Unavailable, duckdb.Error) as reason:
            failure = reason
        else:
            return moment
    assert failure is not None
    raise failure


def _register(connection: duckdb.DuckDBPyConnection, tables: Mapping[str, ds.Dataset]) -> None:
    for name, table in tables.items():
        connection.register(_NAMES[name], table)


def _check_no_gap(connection: duckdb.DuckDBPyConnection, moment: Moment) -> None:
    """Refuse a gap after P, once, as `sql/fold/guard.sql` does: these tables do not move."""
    ((count, total, last),) = connection.execute(tail_text(_values(moment))).fetchall()
    first, last = moment.folded, last or moment.folded
    if moment.point is not None:
        last = moment.point.position
    if count != last - first or 2 * total != (last - first) * (last + first + 1):
        message = f"records are missing after position {first}: run sparkstore verify"
        raise Unavailable(message)


def _values(moment: Moment) -> dict[str, str]:
    """For the text of the views: names, P and the end of history, which stand still."""
    folded = str(moment.folded)
    values = {**_NAMES, "least": folded, "folded": folded, "inhistory": str(moment.in_history)}
    if (point := moment.point) is not None:
        values = as_of_values(
            values,
            point.position,
            point.at,
            folded=moment.folded,
            from_nothing=point.version is None,
            is_in_history=point.is_in_history,
        )
    return values
