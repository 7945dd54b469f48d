"""Compare the queues of a root at two moments: which messages came, left, moved, or passed through.

Two positions come in, rows go out. A message is on a queue or not at each of the two: what happened
in between and left no trace at the end is not a difference, but for a message that came and went
(`passed`). Who holds a message is no difference either.

A message may be on several queues. Of those that it is on at one moment alone, the first that it
left is paired with the first that it came to: it moved. A queue without a partner: it came or left.
"""

from __future__ import annotations

import pyarrow as pa

from sparkstore.embedded.answers import answer
from sparkstore.embedded.duckdb_views import connect
from sparkstore.tables.root import Root

COLUMNS = (
    "change", "message_id", "queue", "to_queue", "at", "outcome", "by", "message_bytes", "subject",
)  # fmt: skip
"""`queue`: where it was, or came to; `to_queue`: where it moved; `by`: who ended its stay."""

_BEFORE = "SELECT queue, message_id FROM queue_messages"
_AFTER = """
SELECT queue, message_id, position, enqueued_at, outcome, ended_position, ended_at, ended_by,
  message_bytes, subject
FROM messages
WHERE ended_position IS NULL OR ended_position > {}
"""
_CHANGES = """
WITH there AS (SELECT * FROM after WHERE outcome IS NULL),
lost AS (
  SELECT *, row_number() OVER (PARTITION BY message_id ORDER BY queue) AS number
  FROM before ANTI JOIN there USING (queue, message_id)
),
gained AS (
  SELECT *, row_number() OVER (PARTITION BY message_id ORDER BY queue) AS number
  FROM there ANTI JOIN before USING (queue, message_id)
),
ended AS (SELECT * FROM after WHERE outcome IS NOT NULL),
passed AS (
  SELECT * FROM ended
  WHERE message_id NOT IN (SELECT message_id FROM before)
    AND message_id NOT IN (SELECT message_id FROM there)
  QUALIFY row_number() OVER (PARTITION BY message_id ORDER BY ended_position DESC) = 1
)
SELECT
  CASE
    WHEN lost.queue IS NULL THEN 'came' WHEN gained.queue IS NULL THEN 'left' ELSE 'moved'
  END AS change,
  coalesce(lost.message_id, gained.message_id) AS message_id,
  coalesce(lost.queue, gained.queue) AS queue,
  CASE WHEN lost.queue IS NOT NULL THEN gained.queue END AS to_queue,
  coalesce(gained.enqueued_at, ended.ended_at) AS "at",
  ended.outcome,
  ended.ended_by AS "by",
  coalesce(gained.message_bytes, ended.message_bytes) AS message_bytes,
  coalesce(gained.subject, ended.subject) AS subject
FROM lost
FULL JOIN gained ON gained.message_id = lost.message_id AND gained.number = lost.number
LEFT JOIN ended ON ended.message_id = lost.message_id AND ended.queue = lost.queue
UNION ALL
SELECT
  'passed', message_id, queue, NULL, ended_at, outcome, ended_by, message_bytes, subject
FROM passed
ORDER BY "at", message_id, queue
"""


def changes(root: Root, start: int, end: int) -> pa.Table:
    """List what is on other queues at one position than at another, with `COLUMNS`.

    Args:
        root: The root that is read.
        start: The earlier position.
        end: The later position, or the same.

    Raises:
        InvalidRequest: A position is in the future, or before history.
        Unavailable: The tables cannot be read.
    """
    before = answer(root, _BEFORE, as_of=start).table
    after = answer(root, _AFTER.format(start), as_of=end).table
    with connect() as connection:
        connection.register("before", before)
        connection.register("after", after)
        return connection.sql(_CHANGES).to_arrow_table()
