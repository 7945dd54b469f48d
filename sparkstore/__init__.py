"""The log, the tables and the jobs of a store: they know Spark, Delta and Arrow, and no AMQP.

Records come in through `log`, which makes them durable and commits them to Delta. `recovery` and
`content` read them back without a JVM. `compaction`, `replication` and `reconcile` are jobs of
Spark, and `views` show the queues to whoever asks with SQL. `core` and `operations` decide what
records mean and what may be asked of a queue, without any engine.
A broker calls `log`, `recovery`, `content` and `control`; an operator calls the command
(`sparkstore.cli`). Two more modules are for everybody: `config` and `settings_file` read settings,
`session` starts Spark, `errors` says what can go wrong. Nothing here imports `broker_shim`.
`query` asks the views of a root without Spark, by DuckDB (`embedded`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from sparkstore.recovery.point_in_time import AsOf

__version__ = "0.6.0"


def query(root: str | Path, sql: str, *, as_of: AsOf | None = None) -> pa.Table:
    """Answer one SELECT over the views of a root, by DuckDB in this process, as an Arrow table.

    Args:
        root: The path of its folder, or a URI as `s3://lake/queues`.
        sql: In DuckDB's SQL; the views are those of `sparkstore sql`.
        as_of: A time, its text as `2026-11-22 10:00`, or a position: the views as they stood then.
            A time without a time zone is UTC.

    Raises:
        InvalidRequest: The query is wrong, or asks for more than the views; there is no root;
            `as_of` is in the future or before history.
        CorruptData: A table of the root is gone.
        Unavailable: The tables cannot be read.

    Warns:
        UnreplayedWarning: A store that was killed has acknowledged records that are in its log and
            not in the tables yet.
    """
    # Not before: who imports a part needs no engine.
    from sparkstore.embedded.query import query as answer  # noqa: PLC0415

    return answer(root, sql, as_of)


def queue_schema(root: str | Path, queue: str) -> str:
    """Infer the schema of the JSON bodies of the first 1,000 messages on a queue.

    Args:
        root: The path of its folder, or a URI as `s3://lake/queues`.
        queue: The name of the queue.

    Returns:
        Spark's DDL, as `number BIGINT, items ARRAY<STRING>`: for `sparkstore.views.body_as`.

    Raises:
        InvalidRequest: None of the bodies is a JSON object; there is no root.
        CorruptData: A table of the root is gone.
        Unavailable: The tables cannot be read.
    """
    from sparkstore.embedded.query import queue_schema as infer  # noqa: PLC0415

    return infer(root, queue)
