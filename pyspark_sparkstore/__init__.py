"""The data source `sparkstore` for Spark, which PySpark finds by the name of this package.

PySpark imports each package with such a name, and registers its `DefaultSource`.
Writes go through the running store (`broker_shim.spark_sink`).
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from broker_shim.spark_sink import QueueStreamWriter, QueueWriter

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """Queues of a store as a data source: rows become messages."""

    @classmethod
    def name(cls) -> str:
        """Return the name that `format` takes."""
        return "sparkstore"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001
        """Make the writer of a DataFrame. See `DataSource.writer`."""
        return QueueWriter(schema, self.options, overwrite=overwrite)

    def streamWriter(  # noqa: N802
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001
    ) -> DataSourceStreamWriter:
        """Make the writer of a stream. See `DataSource.streamWriter`."""
        return QueueStreamWriter(schema, self.options, overwrite=overwrite)
