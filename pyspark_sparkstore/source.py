"""The class that Spark asks for readers and writers: it chooses by the options, and no more.

Imports of readers and writers stand in the methods: each session registers this class, and most
neither read nor write by it. Readers need the embedded engine, an extra; writers load half a broker
(0.4 s).
"""

# ruff: noqa: PLC0415

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from sparkstore.spark_source.options import NAME, is_taking, read_options
from sparkstore.spark_source.stream_options import is_of_events, stream_options


class DefaultSource(DataSource):
    """The queues of a root: their views are read, and rows become messages."""

    @classmethod
    def name(cls) -> str:
        """Return what `format` is given."""
        return NAME

    def schema(self) -> StructType:
        """Return the columns of a read or a stream without `.schema(…)`.

        Spark does not say which of them asks. A stream of events has the option `kind`, and one
        that takes messages `settle`.
        """
        if is_taking(self.options):
            from broker_shim.spark_tickets.message_rows import ticket_schema
            from broker_shim.spark_tickets.ticket_settings import ticket_settings

            return ticket_schema(ticket_settings(self.options))
        if is_of_events(self.options):
            from sparkstore.spark_source.event_columns import event_schema

            return event_schema(self.options)
        from sparkstore.spark_source.columns import default_schema

        return default_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads a view once, or events (option `kind`)."""
        if is_of_events(self.options):
            from sparkstore.spark_source.event_reader import EventBatchReader

            return EventBatchReader(stream_options(self.options), schema)
        from sparkstore.spark_source.batch_reader import batch_reader

        return batch_reader(read_options(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return what follows the events of a root, or takes the messages of a queue."""
        if is_taking(self.options):
            from broker_shim.spark_tickets import TicketStreamReader, ticket_settings

            return TicketStreamReader(ticket_settings(self.options), schema)
        from sparkstore.spark_source.event_reader import EventStreamReader

        return EventStreamReader(stream_options(self.options), schema)

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
