"""The views `job_runs` and `findings`: what the jobs of a root did, and found, for Spark SQL.

Each is a table that is only a log: one that cannot be read keeps nobody from the queues.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from pyspark.sql import SparkSession

from sparkstore.errors import StoreError
from sparkstore.sql.queries import log_as_of
from sparkstore.tables.delta_files import versions
from sparkstore.tables.root import Root
from sparkstore.views.spark_tables import delta_name, statement, translated

LOGS = ("job_runs", "findings")
"""Each is a table in the root, a view, and a query in `sql/`."""

_log = logging.getLogger(__name__)


def publish(spark: SparkSession, root: Root, place: str) -> None:
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


def register(
    spark: SparkSession, root: Root, names: Collection[str] = LOGS, at: int | None = None
) -> None:
    """Create or replace the views, for this session; drop one while the root has no such table.

    Args:
        spark: Session whose catalog gets the views.
        root: Whose tables they are of.
        names: The views to create.
        at: They have what was written up to this time, UTC µs; None: everything.
    """
    for name in (log for log in LOGS if log in names):
        spark.catalog.dropTempView(name)
        if not versions(root.table(name)):
            continue
        table = delta_name(root.table(name))
        query = statement(name, {"table": table if at is None else log_as_of(name, table, at)})
        try:
            with translated(f"cannot register the view {name}"):
                spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS {query}")
        except StoreError as reason:
            _log.warning("%s: the next job sets the table aside and begins it anew", reason)
