"""The columns of the three tables, as Arrow schemas: the only place.

Journal and history hold rows (one record each); state holds the fold, narrow,
partitioned by `part` and `block`:

    part     key                                values
    entry    queue, message_id                  position, at, acquired_by, delivery_count,
                                                priority, expires_at, message_bytes, detail
                                                (`annotations`), segment (1: the record at
                                                `position` brought the content, 0: one before it,
                                                null: not known)
    wiring   queue | exchange | exchange,       position, detail
             queue, binding_key |
             exchange (category),
             binding_key (key)
    member   member                             request (the last decided), detail (refusals: JSON
                                                object of the last `fold.WINDOW`, by request)
    staged   message_id                         position
    link     exchange (`link_text`)             position of the last `attached`, detail (termini),
                                                at: when it was detached, null while it is attached
    delivery exchange (`link_text`),            detail (its state, null: none yet)
             binding_key (tag, hexadecimal)
    meta     (one row)                          position P, epoch, segment of P, message_id (least
                                                id never reserved), history_start

Decision: `block`, a partition column of its own (an entry's message id by `BLOCK_IDS`, null in the
other parts), keeps entries clustered. A MERGE writes all it inserts and copies into one file for
each partition, so without blocks every fold left a file from the oldest id it touched to the
newest, which the next fold had to rewrite whole. Rejected: OPTIMIZE after each fold, which writes
everything a second time.
"""

from __future__ import annotations

import pyarrow as pa

SCHEMA_VERSION = 3
"""Of records and tables. No release wrote 1 (a state without blocks) or 2 (one without members).

Decision: a new kind of record (`altered` was the last) does not raise it. The columns are what they
were, older roots are read as they are, and a reader that does not know the kind refuses the root by
it: `codec` the write-ahead log, `arrow_fold` the tables. Raising it would refuse every root that
has no such record. It rises when a column or the meaning of a kind changes.
"""

_TIME = pa.timestamp("us", tz="UTC")

HEADER_FIELDS = [
    pa.field("protocol", pa.string()),
    pa.field("header", pa.binary()),
    pa.field("durable", pa.bool_()),
    pa.field("priority", pa.int32()),
    pa.field("created_at", _TIME),
    pa.field("expires_at", _TIME),
    pa.field("content_type", pa.string()),
    pa.field("content_encoding", pa.string()),
    pa.field("correlation_id", pa.string()),
    pa.field("reply_to", pa.string()),
    pa.field("subject", pa.string()),
    pa.field("to", pa.string()),
    pa.field("user_id", pa.string()),
    pa.field("app_id", pa.string()),
    pa.field("message_type", pa.string()),
    pa.field("amqp_message_id", pa.string()),
    pa.field("group_id", pa.string()),
    pa.field("header_bytes", pa.int64()),
    pa.field("body_bytes", pa.int64()),
    pa.field("properties", pa.map_(pa.string(), pa.string())),
]
"""One column for each field of `MessageHeader`, in its order and by its names."""

ROW = pa.schema(
    [
        pa.field("position", pa.int64(), nullable=False),
        pa.field("segment", pa.int32(), nullable=False),
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("at", _TIME, nullable=False),
        pa.field("queue", pa.string()),
        pa.field("message_id", pa.int64()),
        pa.field("holder", pa.string()),
        pa.field("delivery_count", pa.int32()),
        pa.field("transaction", pa.int64()),
        *HEADER_FIELDS,
        pa.field("body", pa.binary()),
        pa.field("body_offset", pa.int64()),
        pa.field("exchange", pa.string()),
        pa.field("binding_key", pa.string()),
        pa.field("detail", pa.string()),
        pa.field("member", pa.string()),
        pa.field("request", pa.int64()),
        pa.field("xid", pa.binary()),
    ]
)
"""A row of `journal` and of `history`; partitioned by `segment`."""

BLOCK_IDS = 1 << 18
"""Message ids in one block: what a fold rewrites at least to change one entry, some 4 MB."""


STATE = pa.schema(
    [
        pa.field("part", pa.string(), nullable=False),
        pa.field("block", pa.int64()),
        pa.field("queue", pa.string()),
        pa.field("message_id", pa.int64()),
        pa.field("position", pa.int64()),
        pa.field("at", _TIME),
        pa.field("acquired_by", pa.string()),
        pa.field("delivery_count", pa.int32()),
        pa.field("priority", pa.int32()),
        pa.field("expires_at", _TIME),
        pa.field("message_bytes", pa.int64()),
        pa.field("exchange", pa.string()),
        pa.field("binding_key", pa.string()),
        pa.field("detail", pa.string()),
        pa.field("epoch", pa.int64()),
        pa.field("segment", pa.int32()),
        pa.field("history_start", pa.int64()),
        pa.field("member", pa.string()),
        pa.field("request", pa.int64()),
    ]
)
"""A row of `state`; partitioned by `part` and `block`."""

NARROW_COLUMNS = [name for name in ROW.names if name not in {"header", "body", "properties", "xid"}]
"""What the folds read: everything but content."""
FOLD_COLUMNS = [
    "position",
    "epoch",
    "kind",
    "at",
    "queue",
    "message_id",
    "holder",
    "delivery_count",
    "priority",
    "expires_at",
    "header_bytes",
    "body_bytes",
    "exchange",
    "binding_key",
    "detail",
    "member",
    "request",
]
"""The columns that decide the fold."""

SKIPPING_COLUMNS = "position,message_id,queue,at"
"""Columns of `state` whose statistics both engines keep per file (`dataSkippingStatsColumns`)."""

ROW_SKIPPING_COLUMNS = f"{SKIPPING_COLUMNS},protocol"
"""The same of journal and history, where the count of nulls tells files that bring no content."""

TABLE_CONFIGURATION = {
    "delta.checkpointInterval": "100",
    "delta.enableExpiredLogCleanup": "false",
}
"""Table properties of all three; nothing here may lift the protocol above reader 1, writer 2."""


def table_configuration(table: str) -> dict[str, str]:
    """Table properties of one of the three, by its name."""
    columns = SKIPPING_COLUMNS if table == "state" else ROW_SKIPPING_COLUMNS
    return {**TABLE_CONFIGURATION, "delta.dataSkippingStatsColumns": columns}
