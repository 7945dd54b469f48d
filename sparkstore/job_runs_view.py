"""The view `job_runs`: what the jobs of a root did, for Spark SQL."""

from __future__ import annotations

import logging

from pyspark.sql import SparkSession

from sparkstore.delta_files import versions
from sparkstore.errors import StoreError
from sparkstore.job_runs import NAME
from sparkstore.root import Root
from sparkstore.tables import delta_name, statement, translated

_log = logging.getLogger(__name__)


def register(spark: SparkSession, root: Root) -> None:
    """Create or replace the view, for this session; drop it while the root has no such table.

    It is a log and no more: one that cannot be read is a warning, and keeps nobody from the
    queues.
    """
    spark.catalog.dropTempView(NAME)
    if not versions(root.table(NAME)):
        return
    query = statement(NAME, {"runs": delta_name(root.table(NAME))})
    try:
        with translated(f"cannot register the view {NAME}"):
            spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {NAME} AS {query}")
    except StoreError as reason:
        _log.warning("%s: the next job sets the table aside and begins it anew", reason)
