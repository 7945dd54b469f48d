"""Write `docs/tables.md`: the Delta tables of a root, column by column, as the code declares them.

`python -m broker_shim.generate` does so, after a schema changed. A column without a text, or a text
without a column, is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from sparkstore.core.records import Kind
from sparkstore.current.columns import MESSAGES, QUEUES
from sparkstore.jobs.job_runs import SCHEMA as JOB_RUNS
from sparkstore.queue_columns import Road, columns_of
from sparkstore.reconcile.findings import FINDINGS
from sparkstore.tables import schema
from sparkstore.tables.root import TABLES
from sparkstore.tables.schema import ROW, STATE, table_configuration

PAGE = Path("docs/tables.md")
_KINDS = ", ".join(f"`{kind.column}`" for kind in Kind)
_PARTS = schema.__doc__.split("by `part` and `block`:\n", 1)[1].split("\nDecision:", 1)[0]
"""What is in which part of `state`, as the schema's module has it."""

_MESSAGE = {
    "protocol": "how `header` is encoded; null in a record that only names the message",
    "durable": "whether its sender wants it to survive a restart",
    "priority": "0 to 9",
    "created_at": "when its sender says that it was made",
    "expires_at": "when it expires; null for never",
    "content_type": "of the body, as its sender names it",
    "content_encoding": "of the body, as its sender names it",
    "correlation_id": "what it answers",
    "reply_to": "where an answer is to go",
    "subject": "its subject",
    "to": "the address that it was sent to, as its sender wrote it",
    "user_id": "the user who sent it, or whom its sender names",
    "app_id": "which application made it, as its sender says",
    "message_type": "its type (`JMSType`)",
    "amqp_message_id": "the message id that its sender gave it",
    "group_id": "its group (`JMSXGroupID`)",
    "header_bytes": "bytes of `header`",
    "body_bytes": "bytes of the whole body, however many pieces it came in",
    "properties": "application properties, values as text",
}
_RECORD = {
    "position": "number of the record, from 1, without gaps",
    "segment": "the partition that it was written to",
    "epoch": "which opening of the store wrote it",
    "kind": f"what it says: {_KINDS}",
    "at": "when the store took it",
    "queue": "name of the queue, any text",
    "message_id": "the store's number of the message",
    "holder": "who acquired the message, or ended its stay; a link is JSON",
    "delivery_count": "failed deliveries after a `released`",
    "transaction": "groups the records that became true together",
    **_MESSAGE,
    "header": "all of the message that is not body, in the encoding of `protocol`",
    "body": "the body, or one piece of it (`content`)",
    "body_offset": "where in the body a piece begins",
    "exchange": "name of an exchange; category of a configured object",
    "binding_key": "key of a binding or of a configured object; tag of a delivery; xid of a branch",
    "detail": "JSON: a definition, an object, an outcome, a refusal, or an entry's annotations",
    "member": "which broker instance asked, in the last record of a request",
    "request": "the number of its request",
    "xid": "a branch of a distributed transaction",
}
_STATE = {
    "part": "what the row is about (below)",
    "block": "range of message ids of an entry; null in other parts",
    "queue": _RECORD["queue"],
    "message_id": _RECORD["message_id"],
    "position": "where the row became true; of `meta`, P: the last record that is folded",
    "at": "when the message was enqueued, or the link detached",
    "acquired_by": "who holds the message; null while it is available",
    "delivery_count": "failed deliveries so far",
    "priority": _MESSAGE["priority"],
    "expires_at": _MESSAGE["expires_at"],
    "message_bytes": "bytes of header and body",
    "exchange": "name of an exchange, category, or a link as JSON",
    "binding_key": _RECORD["binding_key"],
    "detail": "JSON, as in a record",
    "epoch": "of `meta`: the newest opening",
    "segment": "of `meta`: the segment of P; of an entry: 1 if its record brought the content",
    "history_start": "of `meta`: from this position on history has no gaps",
    "member": "name of a broker instance",
    "request": "the last of its requests that was decided",
}
_JOB_RUN = {
    "run_id": "a UUID, hexadecimal",
    "job": "`compact`, `replicate`, `reconcile` …",
    "began_at": "when it began",
    "seconds": "how long it took",
    "outcome": "`done`, `failed`, or what its report says",
    "figures": "JSON: what its report has beyond these",
    "error": "why it failed, in one line",
}
_FINDING = {
    "run": "the run that found it: when it began (UTC), and a random end",
    "found_at": "when it was found",
    "check": "the invariant that is broken",
    "severity": "`info`, `warning` or `error`",
    "subject": "what it is about: a table, a position, a message, an entry, a queue",
    "evidence": "JSON: what was counted or compared",
    "repair": "`none`, `proposed` or `done`",
    "advice": "what to do next, or what the repair did",
}
_QUEUE = {
    **{column.name: column.text for column in columns_of(Road.CURRENT)},
    "as_of_position": "the last record that is in the table",
    "as_of": "when the command began to read",
}
_WAITING = {
    **{name: text for name, text in _MESSAGE.items() if name in MESSAGES.names},
    **{name: _STATE[name] for name in STATE.names if name in MESSAGES.names},
    "position": "position of the record that put it on the queue",
    "enqueued_at": "when the store took it",
    "annotations": "what its place on this queue adds to its message annotations, as text",
    "block": "range of message ids",
}


class _Table(NamedTuple):
    """A kind of table: where it is, who commits to it, what its columns say."""

    places: tuple[str, ...]
    about: str
    columns: pa.Schema
    texts: Mapping[str, str]
    partitions: tuple[str, ...] = ()


DECLARED = (
    _Table(
        ("journal", "history"),
        "A row is a record. The journal has the newest, and the store alone commits to it"
        " (deltalake). History has all that a compaction moved; Spark's jobs alone commit to it."
        " A position may be in both: then the rows are the same. In the journal a row counts if no"
        " `opened` of a higher epoch has a position at or before its own.",
        ROW,
        _RECORD,
        tuple(TABLES["journal"][1]),
    ),
    _Table(
        ("state",),
        "The queues as of position P, without bodies. Spark's jobs alone commit to it, each version"
        " by one MERGE. How things are now is the state and every record after P: ask the views"
        " ([sql.md](sql.md)).",
        STATE,
        _STATE,
        tuple(TABLES["state"][1]),
    ),
    _Table(("job_runs",), "A row is a run of a job. deltalake commits to it.", JOB_RUNS, _JOB_RUN),
    _Table(
        ("findings",),
        "A row is a thing that `sparkstore reconcile` found. Spark commits to it.",
        FINDINGS,
        _FINDING,
    ),
    _Table(
        ("current/queues",),
        "A row is a queue. `sparkstore current` writes it, for readers without the views.",
        QUEUES,
        _QUEUE,
    ),
    _Table(
        ("current/queue_messages",),
        "A row is a message on a queue; of the same command.",
        MESSAGES,
        _WAITING,
        ("block",),
    ),
)
_HEAD = """\
# Tables of a root

What a root's Delta tables are made of, for readers of the tables themselves. Most questions are
easier asked of the [views](sql.md). Made by `python -m broker_shim.generate` from the schemas in
the code: change those.

No table needs more than Delta's reader version 1 and writer version 2. A test reads each with
Spark, deltalake, DuckDB, Polars and delta-kernel, and compares the rows one by one. Only sparkstore
may commit to the tables: each has one committing engine. Times are UTC, in microseconds.
"""
_ICEBERG = """\
## Iceberg

No table here is an Iceberg table. Delta's UniForm would make one, but raises the versions that
both of our engines read. PyIceberg can make one of `current/queue_messages` without Spark. This was
tried with PyIceberg 0.12.0 and its SQL catalog, 2026-11-27:

- It adds files that are there to a new table and reads their footers only. All rows and types are
  there, but for the partition column `block`, which is in no data file. It takes 2.4 s of processor
  time for 1,000 files of four rows.
- The next publication deletes all rows and adds all files again, in one transaction: PyIceberg
  documents no call for single files that go. So all footers are read each time (2.6 s), where
  `sparkstore current` writes the blocks that changed.
- Nobody removes what is old: to expire snapshots forgets them and deletes no file. Each
  publication left 0.6 MB of metadata for these files, which is 160 MB a day if it runs every five
  minutes. Deleted data files of `current` go an hour later, so an older snapshot cannot be read.
- It needs a catalog to commit to, and 20 more packages.

So it serves for a copy of one moment, and not for a table that is kept up to date.
There is no command for it. An engine that reads Iceberg alone can be given that copy.
"""


def page() -> str:
    """Return the text of `docs/tables.md`."""
    return "\n".join([_HEAD, *(line for table in DECLARED for line in _lines(table)), _ICEBERG])


def _lines(table: _Table) -> Iterator[str]:
    assert {*table.texts} == {*table.columns.names}, f"{table.places}: columns and texts differ"
    yield f"## {' and '.join(f'`{place}`' for place in table.places)}\n"
    partitions = ", ".join(f"`{name}`" for name in table.partitions)
    yield table.about + (f" Partitioned by {partitions}." if partitions else "") + "\n"
    if table.places[0] in TABLES:
        properties = table_configuration(table.places[0]).items()
        yield f"Properties: {', '.join(f'`{name}` = `{value}`' for name, value in properties)}.\n"
    yield "| column | type | null | what it says |"
    yield "| --- | --- | --- | --- |"
    for field in table.columns:
        may_be_null = "may be" if field.nullable else "never"
        kind, text = spark_type(field.type), table.texts[field.name]
        yield f"| `{field.name}` | {kind} | {may_be_null} | {text} |"
    yield ""
    if table.columns is STATE:
        yield f"```\n{_PARTS.strip(chr(10))}\n```\n"


def spark_type(kind: pa.DataType) -> str:
    """Return the name that Spark and Delta's readers have for a type of Arrow."""
    if pa.types.is_map(kind):
        return f"map<{spark_type(kind.key_type)},{spark_type(kind.item_type)}>"
    return _SPARK[str(kind)]


_SPARK = {
    "string": "string",
    "int64": "bigint",
    "int32": "int",
    "bool": "boolean",
    "binary": "binary",
    "double": "double",
    "timestamp[us, tz=UTC]": "timestamp",
}
