"""The class that Spark asks for readers and writers: it chooses by the options, and no more.

Imports of readers and writers stand in the methods: each session registers this class, and most
neither read nor write by it. Readers need the embedded engine, an extra; writers load half a broker
(0.4 s).
"""

# ruff: noqa: PLC0415

from __future__ import annotations

from typing import NoReturn

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from sparkstore.errors import InvalidRequest
from sparkstore.spark_source.options import NAME, read_options


class DefaultSource(DataSource):
    """The queues of a root: their views are read, and rows become messages."""

    @classmethod
    def name(cls) -> str:
        """Return what `format` is given."""
        return NAME

    def schema(self) -> StructType:
        """Return the columns of a read without `.schema(…)`."""
        from sparkstore.spark_source.columns import default_schema

        return default_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads a view once."""
        from sparkstore.spark_source.batch_reader import batch_reader

        return batch_reader(read_options(self.options), schema)

    def streamReader(self, schema: StructType) -> NoReturn:  # noqa: N802, ARG002
        """Refuse to stream: a read has an end in this version.

        Raises:
            InvalidRequest: Always, naming what there is.
        """
        message = f"format('{NAME}') has no readStream in this version: use spark.read"
        raise InvalidRequest(message)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001
        """Make the writer of a DataFrame. See `DataSource.writer`."""
        from broker_shim.spark_sink import QueueWriter

        return QueueWriter(schema, self.options, overwrite=overwrite)

    def streamWriter(  # noqa: N802
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001
    ) -> DataSourceStreamWriter:
        """Make the writer of a stream. See `DataSource.streamWriter`."""
        from broker_shim.spark_sink import QueueStreamWriter

        return QueueStreamWriter(schema, self.options, overwrite=overwrite)
