"""The queues as Spark SQL sees them: temporary views over state and every record after it.

`register` makes

    queues            one row for each queue: depth, bytes, who acquired how many, oldest message
    queue_messages    one row for each message on each queue: typed header, properties, body
    messages          one row for each message, consumed ones too: content, and how it ended
    message_history   one row for each event of each message
    bindings          one row for each binding
    configuration     one row for each object of a broker's configuration
    transactions      one row for each branch of a distributed transaction that is in doubt
    members           one row for each broker instance that asks by numbered requests
    links             one row for each AMQP link that outlives its connection
    deliveries        one row for each unsettled delivery of such a link
    job_runs          one row for each run of a job, once there was one
    findings          one row for each thing that `reconcile` found, once there was one

The queries are in `sql/`: each view is made of steps, and each step is one file.

A view is looked up anew by each query (`view_relations`), so one that was registered before a
compaction and a trim is right after them. In a catalog (`publish`), over Spark Connect, and of a
root whose files are elsewhere it is its text, which names no version of a table and no position,
analysed anew by each query. Delta reads each table at one version within one query; between tables
the versions may be from different moments, which the guard notices when it matters: state older
than history or journal only means more records after P, unless some are gone
(`sql/fold/guard.sql`).
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.sql_formatter import SQLStringFormatter

from sparkstore.content.body_schemas import QUEUE_SCHEMA
from sparkstore.errors import InvalidRequest, StoreError
from sparkstore.recovery.point_in_time import AsOf, PointInTime, point_in_time
from sparkstore.session import quiet_query_log
from sparkstore.sql.queries import GUARDS, LOGS, VIEWS, log_as_of, view_text
from sparkstore.tables.delta_files import versions
from sparkstore.tables.root import TABLES, Root, open_root
from sparkstore.views import typed_queries, value_functions
from sparkstore.views.join_hints import hints
from sparkstore.views.spark_tables import delta_name, statement, table_names, translated
from sparkstore.views.view_relations import (
    LOCAL_ROWS,
    ViewRelations,
    can_call_back,
    register_views,
)
from sparkstore.views.written_queries import Relations

_log = logging.getLogger(__name__)

ALL = (*VIEWS, *LOGS)
"""Names of the views that `register` makes."""


def register(
    spark: SparkSession,
    root: Root | str | Path,
    names: Collection[str] = ALL,
    *,
    as_of: AsOf | None = None,
    local_rows: int = LOCAL_ROWS,
) -> None:
    """Create or replace the views, for this session. One root at a time.

    Args:
        spark: Session whose catalog gets the views.
        root: The root, or where it is.
        names: The views to create. No table is read for it.
        as_of: A time, its text, or a position: every view says how all was then, whatever comes
            later (`recovery.point_in_time`). A time without a zone is UTC. None: each query says
            how all is when it is analysed.
        local_rows: Views of messages are computed in this process while their tables have no more
            rows; 0: every view is a plan over Delta (`view_relations`).

    Raises:
        InvalidRequest: There is no root there; `as_of` is in the future, or before history.
        Unavailable: Its tables cannot be read.
    """
    quiet_query_log()
    opened = root if isinstance(root, Root) else open_root(root)
    point = _point(opened, as_of)
    wanted = [view for view in VIEWS if view in names]
    if opened.remote is None and can_call_back(spark):
        relations = ViewRelations(spark, opened, point, local_rows)
        register_views(spark, relations, wanted)
    else:
        relations = None
        for view, query in _queries(opened, point).items():
            if view in wanted:
                with translated(f"cannot register the view {view}"):
                    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {view} AS {query}")
    if names is ALL:
        value_functions.register(spark)
    _register_logs(spark, opened, names, relations, None if point is None else point.at)


def named_in(statement: str) -> Collection[str]:
    """Return the views whose names stand in a statement; all of them if none does.

    A name in a comment or a literal counts, too: one view more does no harm. A statement that
    names none lists views, or misspells one, and Spark's error tells those that are like it.
    """
    words = frozenset(re.findall(r"\w+", statement.lower()))
    asked = {"queue_messages"} if QUEUE_SCHEMA in words else frozenset[str]()
    return words.intersection(ALL) | asked or ALL


def publish(
    spark: SparkSession,
    root: Root | str | Path,
    schema: str,
    tables: Mapping[str, str] | None = None,
) -> None:
    """Make the views permanent in a schema of the session's catalog, created if it is not there.

    Whoever shares the catalog queries them by `schema.queues`, without this package. They are
    views of one root: another root needs another schema.

    Args:
        spark: A session with a catalog that outlives it.
        root: Whose views they are.
        schema: Where they come to be.
        tables: Delta tables that get an entry there, too: name, and where each is.

    Raises:
        InvalidRequest: There is no root there; the session has no catalog that outlives it; no such
            name.
        Unavailable: The catalog does not take them.
    """
    check_may_publish(spark, schema)
    place = ".".join(f"`{part}`" for part in schema.split("."))
    opened = root if isinstance(root, Root) else open_root(root)
    with translated(f"cannot publish views in {schema}"):
        spark.sql(f"CREATE SCHEMA IF NOT EXISTS {place}")
        for view, query in _queries(opened).items():
            spark.sql(f"CREATE OR REPLACE VIEW {place}.{view} AS {query}")
        _publish_logs(spark, opened, place)
        for table, where in (tables or {}).items():
            enter(spark, f"{place}.{table}", where)


def enter(spark: SparkSession, table: str, where: str) -> None:
    """Let the catalog name a Delta table that is there; nothing is committed to it."""
    target = delta_name(where)
    wanted = spark.sql(f"DESCRIBE DETAIL {target}").first()
    assert wanted is not None
    if spark.catalog.tableExists(table):
        detail = spark.sql(f"DESCRIBE DETAIL {table}").first()
        if detail is not None and detail.location == wanted.location:
            return
        spark.sql(f"DROP TABLE {table}")  # of a table that is elsewhere this drops the entry alone
    location = str(wanted.location).replace("\\", "\\\\").replace("'", "\\'")
    spark.sql(f"CREATE TABLE {table} USING delta LOCATION '{location}'")


def check_may_publish(spark: SparkSession, schema: str) -> None:
    """Refuse what `publish` would refuse, before hours of work.

    Raises:
        InvalidRequest: The session has no catalog that outlives it; no such name.
    """
    if spark.conf.get("spark.sql.catalogImplementation") == "in-memory":
        message = "Spark has no catalog: give it one (--conf spark.sql.catalogImplementation=hive)"
        raise InvalidRequest(message)
    if not re.fullmatch(r"\w+(\.\w+)*", schema):
        message = f"{schema!r} is no name of a schema: letters, digits and underscores"
        raise InvalidRequest(message)


def _point(root: Root, as_of: AsOf | None) -> PointInTime | None:
    with translated("cannot look at the tables"):
        return None if as_of is None else point_in_time(root, as_of)


def _queries(root: Root, point: PointInTime | None = None) -> dict[str, str]:
    """The text of each view."""
    with translated("cannot look at the tables"):
        values = table_names(root, point) | hints(root, point)
    return {view: view_text(view, {**values, **GUARDS.get(view, {})}) for view in VIEWS}


def sql(
    spark: SparkSession,
    root: Root | str | Path,
    query: str,
    args: Mapping[str, Any] | None = None,
    *,
    as_of: AsOf | None = None,
) -> DataFrame:
    """Answer a query over the views of a root; `{name}` in it is a value of `args`.

    PySpark writes the value as a literal, escaped. Spark's own `:name` does not work in a session
    with delta-spark 4.4: its parser leaves parameters unbound.

    The query passes the same check as one that is typed at the command line (`typed_queries`): with
    functions of your own, or other tables, call `register` and ask the session itself. With
    `as_of` the views say how all was then (`register`).

    Raises:
        InvalidRequest: The query is wrong, or asks for more than the views; there is no root;
            `as_of` is in the future, or before history.
        Unavailable: The tables cannot be read.
    """
    opened = root if isinstance(root, Root) else open_root(root)
    register(spark, opened, named_in(query), as_of=as_of)
    with translated("the query failed", is_typed=True):
        statement = SQLStringFormatter(spark).format(query, **args) if args else query
        return ask(spark, opened, statement)


def ask(spark: SparkSession, root: Root, statement: str) -> DataFrame:
    """Answer one statement over the views that are registered, and the tables, of a root.

    Raises:
        InvalidRequest: It asks for more than them.
        PySparkException: It is wrong.
    """
    value_functions.register_named(spark, statement)
    locations = [root.spark_location(name) for name in TABLES]
    tables = [*locations, *(str(root.table(name)) for name in LOGS)]
    views = frozenset({*VIEWS, *LOGS})
    followed = (where if "://" in where else os.path.realpath(where) for where in tables)
    return typed_queries.ask(spark, Relations(views, frozenset(followed)), statement)


def _publish_logs(spark: SparkSession, root: Root, place: str) -> None:
    """Create or replace the views in a schema of the session's catalog.

    One is dropped while the root has no such table. A root in a bucket has neither.

    Args:
        spark: A session with a catalog that outlives it.
        root: Whose tables they are of.
        place: The schema, quoted.
    """
    for name in LOGS:
        if root.remote is None and versions(root.table(name)):
            query = statement(name, {"table": delta_name(root.table(name))})
            spark.sql(f"CREATE OR REPLACE VIEW {place}.{name} AS {query}")
        else:
            spark.sql(f"DROP VIEW IF EXISTS {place}.{name}")


def _register_logs(
    spark: SparkSession,
    root: Root,
    names: Collection[str],
    relations: ViewRelations | None,
    at: int | None,
) -> None:
    """Create or replace the views, for this session; drop one while the root has no such table.

    Args:
        spark: Session whose catalog gets the views.
        root: Whose tables they are of.
        names: The views to create.
        relations: What makes them; None: they are texts.
        at: They have what was written up to this time, UTC µs; None: everything.
    """
    for name in (log for log in LOGS if log in names):
        spark.catalog.dropTempView(name)
        if not versions(root.table(name)):
            continue
        try:
            if relations is not None:
                register_views(spark, relations, [name])
                continue
            table = delta_name(root.table(name))
            query = statement(name, {"table": table if at is None else log_as_of(name, table, at)})
            with translated(f"cannot register the view {name}"):
                spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS {query}")
        except StoreError as reason:
            advice = "the next job sets the table aside and begins it anew"
            _log.warning("no view %s: %s: %s", name, reason, advice)
