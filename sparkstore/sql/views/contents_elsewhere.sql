-- The rest of `contents`: what came on another queue than those that it is on, or was on (see there).
-- By GROUP BY, not UNION: beside that DuckDB reads all columns of the other side of a join.
UNION ALL
SELECT {entryhint}
  entry.queue, entry.message_id, {contentcolumns}, message.header, message.body
FROM (
  SELECT queue, message_id
  FROM (
    SELECT queue, message_id FROM {state} WHERE part = 'entry' AND NOT segment <=> 1
    UNION ALL
    SELECT queue, message_id FROM {events}
    WHERE position > {least} AND kind = 'enqueued' AND protocol IS NULL
  )
  GROUP BY queue, message_id
) AS entry
JOIN (
  SELECT queue, message_id, {contentcolumns}, header, body
  FROM {events}
  WHERE kind = 'enqueued' AND protocol IS NOT NULL
) AS message
  ON message.message_id = entry.message_id AND message.queue <> entry.queue
