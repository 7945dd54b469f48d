"""The view `findings`: what the reconciliation job found, for Spark SQL."""

from __future__ import annotations

import logging

from pyspark.sql import SparkSession

from sparkstore.delta_files import versions
from sparkstore.errors import StoreError
from sparkstore.root import Root
from sparkstore.tables import delta_name, statement, translated

NAME = "findings"

_log = logging.getLogger(__name__)


def register(spark: SparkSession, root: Root) -> None:
    """Create or replace the view, for this session; drop it while the root has no such table.

    A table that cannot be read is a warning: it keeps nobody from the queues.
    """
    spark.catalog.dropTempView(NAME)
    if not versions(root.table(NAME)):
        return
    query = statement(NAME, {"findings": delta_name(root.table(NAME))})
    try:
        with translated(f"cannot register the view {NAME}"):
            spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {NAME} AS {query}")
    except StoreError as reason:
        _log.warning("%s: the next reconcile sets the table aside and begins it anew", reason)
