"""A table without the data files that it names and that are not there (`parquet_check`)."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from sparkstore.tables.parquet_check import lost_files
from sparkstore.tables.root import Root
from sparkstore.views.spark_tables import delta_name


def lost_of(root: Root, table: str) -> dict[str, str]:
    """Data files that a table names and that are not whole, and why."""
    if root.remote is not None:
        return root.remote.lost_files(table)
    return lost_files(root.table(table))


def without(spark: SparkSession, root: Root, table: str, lost: Collection[str]) -> DataFrame:
    """A table as Spark reads it; without some of its files, if it lost them.

    Spark's own `ignoreMissingFiles` would hide files that go while a query runs, too.
    """
    if lost:
        return whole_files(spark, root, table, lost)
    return spark.sql(f"SELECT * FROM {delta_name(root.spark_location(table))}")  # noqa: S608


def whole_files(spark: SparkSession, root: Root, table: str, lost: Collection[str]) -> DataFrame:
    """The rows of a table's files, but for some; with `_metadata.row_index`, as Parquet has it."""
    folder = str(root.table(table)) if root.remote is None else root.remote.data_folder(table)
    schema = spark.read.format("delta").load(root.spark_location(table)).schema
    paths = _actions(root.table(table))["path"].to_pylist()
    files = [f"{folder}/{path}" for path in paths if path not in lost]
    reader = spark.read.schema(schema).option("basePath", folder)
    if files:
        return reader.parquet(*files)
    return reader.parquet(folder).where("false")


def parts_of(table: Path, files: Collection[str]) -> set[int]:
    """Segments that some files of a table of records are in."""
    actions = _actions(table)
    rows = zip(actions["path"].to_pylist(), actions["partition.segment"].to_pylist(), strict=True)
    return {int(segment) for path, segment in rows if path in files}


def _actions(table: Path) -> pa.Table:
    return pa.table(DeltaTable(str(table)).get_add_actions(flatten=True))
