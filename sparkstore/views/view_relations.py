"""A view of a session is looked up when a query names it: as rows, or as a plan over Delta.

`register_views` gives a session a table function for each view, which no query may name but the
view itself: `CREATE TEMPORARY VIEW queues AS SELECT * FROM sparkstore_queues()`. Spark keeps the
text of a view and analyses it anew in each query, and then calls the function, in this process. So
nothing is read when views are registered, and a view is of now in each query, after any commit,
compaction or trim. All views of one query are of one moment. What the function returns
is one of two:

- *Rows.* DuckDB computes the view here, and Spark gets a local relation, which takes no job. So it
  is where the answer is small: of a view that has a row for each queue, link, member or run of a
  job, and of the views of messages while the tables have few rows (`LOCAL_ROWS`). An answer that
  turns out to be more than `_LOCAL_BYTES` is given up, but of what a job writes.
- *A plan over Delta*, of the same moment: its text names the versions of the tables, and what is
  known of them (`recovery.standing_tables`), so it is planned in two thirds of the time.

Why a plan that names versions is right: a version of a table never changes. State is looked up
first, then the journal, and history last. What leaves the journal is in history by then
(ARCHITECTURE: Rule 5), so every record after P is in one of the two. The files of these versions
stay for `reader_grace_s`.

Decision: a table function that the driver computes. Rejected:

- `format("sparkstore")` as the relation. Spark plans it in a Python process of its own and reads it
  in another (seconds for the first), prunes no column, and executors need the root's folder.
- To make the views anew before each query: nobody tells a session that a query is coming.
- The text of the view in the session, as a catalog has it (`views.publish`): 33 jobs for eleven
  views, and 4.5 s for each later query on a machine where this takes 0.5.

The price: a predicate does not get below local rows, so all of a small view is computed, with its
bodies. And a DataFrame is of the moment at which it was made, as with `format("sparkstore")`.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from sparkstore.embedded.answers import small_view, view_schema
from sparkstore.embedded.duckdb_views import moment_of
from sparkstore.embedded.moment import Moment
from sparkstore.errors import StoreError
from sparkstore.recovery.point_in_time import PointInTime
from sparkstore.recovery.standing_tables import standing_tables
from sparkstore.sql.queries import GUARDS, VIEWS, view_text
from sparkstore.tables.root import Root
from sparkstore.tables.snapshot import last_position
from sparkstore.views.join_hints import hints_for
from sparkstore.views.permitted_sql import VIEW_PREFIX
from sparkstore.views.spark_tables import table_names, translated

LOCAL_ROWS = 100_000
"""Views of messages are computed here while the tables have no more rows than this."""
_LOCAL_BYTES = 32 << 20
"""Spark makes a local relation of no more than 48 MB of Arrow."""
_QUERIES = 16
"""So many may be analysed at once, on as many threads; the moment of an older one is forgotten."""
_OF_MESSAGES = {
    "queue_messages": ("state", "history", "journal"),
    "messages": ("state", "history", "journal"),
    "message_history": ("history", "journal"),
}
"""The views with a row for each message or event, and the tables that say how many these may be."""


class ViewRelations:
    """Makes relations of the views of one root, as it is now or as it stood once."""

    def __init__(
        self,
        spark: SparkSession,
        root: Root,
        point: PointInTime | None,
        local_rows: int,
    ) -> None:
        """Read nothing yet.

        Args:
            spark: The session whose queries name the views.
            root: The root; its files are on this machine.
            point: A moment of the past; None: each query is of now.
            local_rows: As `LOCAL_ROWS`; 0: every view is a plan over Delta.
        """
        self._spark, self._root, self._point = spark, root, point
        self._local_rows = local_rows
        self._jvm: Any = spark._jvm  # noqa: SLF001
        self._guard = threading.Lock()
        self._moments: dict[int, Moment] = {}

    def empty(self, view: str) -> Any:
        """Return a relation with the columns of a view, and no row.

        Raises:
            InvalidRequest, CorruptData, Unavailable: As `answers.view_schema`.
        """
        return self._local(view_schema(self._root, view).empty_table())

    def relation(self, view: str) -> Any:
        """Return what a query that names a view reads; an error is one when the query runs."""
        try:
            return self._relation(view)
        except StoreError as reason:
            return self._failure(view, str(reason))

    def _relation(self, view: str) -> Any:
        moment = self._moment() if view in VIEWS else None
        rows = None
        if moment is None or (self._local_rows and self._is_small(view, moment)):
            at = None if self._point is None else self._point.at
            most_bytes = _LOCAL_BYTES if moment is not None else sys.maxsize
            rows = small_view(self._root, view, moment, most_bytes, at)
        if rows is not None:
            return self._local(rows)
        assert moment is not None
        with translated(f"cannot plan the view {view}"):
            return _analysed(self._spark.sql(self._text(view, moment)))

    def _moment(self) -> Moment:
        """Return the tables as the query sees them that is analysed on this thread.

        Spark has a cache of relations for each query, which the views in it share.
        """
        context = self._jvm.org.apache.spark.sql.catalyst.analysis.AnalysisContext.get()
        key = self._jvm.System.identityHashCode(context.relationCache())
        with self._guard:
            moment = self._moments.get(key)
            if moment is None:
                moment = self._moments[key] = moment_of(self._root, self._point)
                while len(self._moments) > _QUERIES:
                    del self._moments[next(iter(self._moments))]
            return moment

    def _is_small(self, view: str, moment: Moment) -> bool:
        names = _OF_MESSAGES.get(view, ())
        files = [file for name in names for file in getattr(moment, name)]
        unknown = any(file.row_count < 0 for file in files)
        return not unknown and sum(file.row_count for file in files) <= self._local_rows

    def _local(self, rows: pa.Table) -> Any:
        return _analysed(self._spark.createDataFrame(rows, from_arrow_schema(rows.schema)))

    def _text(self, view: str, moment: Moment) -> str:
        names = table_names(self._root, self._point)
        if self._point is not None:
            sizes = hints_for(moment.state, moment.folded, self._point.position - moment.folded)
            return view_text(view, {**names, **sizes, **GUARDS.get(view, {})})
        tables = standing_tables(moment.state, moment.journal, moment.history)
        for name, version in zip(("state", "journal", "history"), moment.versions, strict=True):
            names[name] += f" VERSION AS OF {version}"
        end = max(tables.in_history, last_position(moment.journal), tables.folded)
        sizes = hints_for(moment.state, tables.folded, end - tables.folded)
        known = tables.values(names, has_contents=view == "queue_messages")
        return view_text(view, {**names, **sizes, **known, **GUARDS.get(view, {})})

    def _failure(self, view: str, message: str) -> Any:
        """Return a relation that raises an error when its query is planned.

        Spark computes filters of local rows first, before it leaves out what a query does not need.
        """
        schema = view_schema(self._root, view)
        nulls = pa.table([pa.nulls(1, kind) for kind in schema.types], schema=schema)
        text = message.replace("\\", "\\\\").replace("'", "\\'")
        frame = self._spark.createDataFrame(nulls, from_arrow_schema(schema))
        return _analysed(frame.where(f"raise_error('{text}') IS NULL"))


class _ViewFunction:
    """A function of Scala: the arguments of a table function → its plan."""

    class Java:
        implements = ("scala.Function1",)

    def __init__(self, columns: Any) -> None:
        """Answer with a relation that has the columns, until `plan` is set."""
        self.plan: Callable[[], Any] = lambda: columns

    def apply(self, _arguments: Any) -> Any:
        """Answer Spark's analyser, in the thread that analyses the query."""
        return self.plan()


def register_views(spark: SparkSession, relations: ViewRelations, names: Collection[str]) -> None:
    """Create or replace temporary views, each with its function.

    To create one Spark analyses it: then the function gives it the columns alone.
    """
    jvm: Any = spark._jvm  # noqa: SLF001
    gateway = spark.sparkContext._gateway  # noqa: SLF001
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    catalyst = jvm.org.apache.spark.sql.catalyst
    place = jvm.scala.Option.apply("session"), jvm.scala.Option.apply("system")
    registry = spark._jsparkSession.sessionState().tableFunctionRegistry()  # noqa: SLF001
    for view in names:
        name = f"{VIEW_PREFIX}{view}"
        function = _ViewFunction(relations.empty(view))
        info = catalyst.expressions.ExpressionInfo(ViewRelations.__name__, name)
        registry.registerFunction(catalyst.FunctionIdentifier(name, *place), info, function)
        with translated(f"cannot register the view {view}"):
            spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {view} AS SELECT * FROM {name}()")  # noqa: S608
        function.plan = partial(relations.relation, view)


def can_call_back(spark: SparkSession) -> bool:
    """Tell whether the session's JVM can call this process: not by Spark Connect."""
    return hasattr(spark, "_jsparkSession")


def _analysed(frame: Any) -> Any:
    return frame._jdf.queryExecution().analyzed()  # noqa: SLF001
