"""Record batches of the messages of a ticket: where each is, its header, and its content."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from broker_shim.spark_tickets.ticket_settings import TicketSettings
from broker_shim.store.interface import StoredMessage
from sparkstore.spark_source.columns import check_columns
from sparkstore.tables.schema import HEADER_FIELDS

_TICKET_FIELDS = (
    pa.field("queue", pa.string()),
    pa.field("message_id", pa.int64()),
    pa.field("delivery_count", pa.int32()),
    pa.field("ticket", pa.int64()),
)
_BODY = pa.field("body", pa.binary())
FIELDS = (*_TICKET_FIELDS, *HEADER_FIELDS, _BODY)
_RAW = "header"
"""What of a message no other column has, as bytes: left out of the usual columns."""


def ticket_schema(settings: TicketSettings) -> StructType:
    """Return the columns of a stream without `.schema(…)`: the content is settled, so it is there.

    Raises:
        InvalidRequest: A column is not there.
    """
    columns = _columns_there()
    names = [name for name in columns.names if name != _RAW]
    if settings.columns:
        names = columns.names if settings.columns == ("*",) else [*settings.columns]
    check_ticket_columns(names)
    return StructType([columns[name] for name in names])


def check_ticket_columns(names: Sequence[str]) -> None:
    """Refuse a column that no taken message has.

    Raises:
        InvalidRequest: One is not there; the message lists those that are.
    """
    check_columns([*names], _columns_there(), "of a stream that takes")


def message_batch(
    messages: Sequence[StoredMessage],
    counts: Sequence[int],
    queue: str,
    ticket: int,
    schema: pa.Schema,
) -> pa.RecordBatch:
    """Make a record batch of messages.

    Args:
        messages: With their content.
        counts: Of each, how often a delivery has failed.
        queue: Where they are.
        ticket: Number of the ticket that they are of.
        schema: The columns that are asked for, of `FIELDS`.
    """
    rows = len(messages)
    columns: dict[str, Sequence[Any]] = {
        "queue": [queue] * rows,
        "message_id": [message.message_id for message in messages],
        "delivery_count": counts,
        "ticket": [ticket] * rows,
        "body": [message.body for message in messages],
    }
    headers = zip(*(message.header for message in messages), strict=True)
    columns |= dict(zip((field.name for field in HEADER_FIELDS), headers, strict=True))
    types = {field.name: field.type for field in FIELDS}
    arrays = [pa.array(columns[name], types[name]) for name in schema.names]
    return pa.RecordBatch.from_arrays(arrays, names=schema.names).cast(schema)


def _columns_there() -> StructType:
    fields = [field.with_nullable(nullable=True) for field in FIELDS]
    schema: StructType = from_arrow_schema(pa.schema(fields))
    return schema
