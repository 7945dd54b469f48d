"""The queues as Spark SQL sees them: temporary views over state and every record after it.

`register` makes

    queues            one row for each queue: depth, bytes, who acquired how many, oldest message
    queue_messages    one row for each message on each queue: typed header, properties, body
    message_history   one row for each event of each message
    bindings          one row for each binding
    job_runs          one row for each run of a job, once there was one (`job_runs_view`)
    findings          one row for each thing that `reconcile` found, once there was one

The queries are in `sql/`: each view is made of steps, and each step is one file.

Decision: a view is its text, analysed anew by each query, and the text names no version of a
table and no position. So a view that was registered before a compaction and a trim is right after
them. Delta reads each table at one version within one query; between tables the versions may be
from different moments, which the guard notices when it matters: state older than history or
journal only means more records after P, unless some are gone (`sql/guard.sql`). Rejected: a
DataFrame's `createTempView`, which keeps the analysed plan, and pinned versions, which a VACUUM
takes away under the view.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from sparkstore import findings_view, job_runs_view
from sparkstore.root import Root, open_root
from sparkstore.tables import table_names, text, translated

_TAIL = ("opening", "tail", "guard")
_ENTRIES = ("changes", "dropped", "folded", "entries")
_WIRING = ("wired", "wiring")

VIEWS: Mapping[str, tuple[str, ...]] = {
    "queues": (*_TAIL, *_ENTRIES, *_WIRING),
    "queue_messages": (*_TAIL, *_ENTRIES, "events"),
    "message_history": (*_TAIL, "events"),
    "bindings": (*_TAIL, *_WIRING),
}
"""What users query, and the steps that each is made of, a step after those that it names."""


def register(spark: SparkSession, root: Root | str | Path) -> None:
    """Create or replace the views, for this session. One root at a time.

    Raises:
        InvalidRequest: There is no root there.
        Unavailable: Its tables cannot be read.
    """
    found = root if isinstance(root, Root) else open_root(root)
    names = table_names(found)
    for view, steps in VIEWS.items():
        with translated(f"cannot register the view {view}"):
            spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {view} AS {text(view, steps, names)}")
    job_runs_view.register(spark, found)
    findings_view.register(spark, found)


def sql(
    spark: SparkSession,
    root: Root | str | Path,
    query: str,
    args: Mapping[str, Any] | None = None,
) -> DataFrame:
    """The answer to a query over the views of a root; `{name}` in it is a value of `args`.

    PySpark writes the value as a literal, escaped. Spark's own `:name` does not work in a session
    with delta-spark 4.4: its parser leaves parameters unbound.

    Raises:
        InvalidRequest: The query is wrong, or there is no root.
        Unavailable: The tables cannot be read.
    """
    register(spark, root)
    with translated("the query failed"):
        return spark.sql(query, **args) if args else spark.sql(query)
