-- One row for each message on each queue that it is or was on, as long as history has its content: the
-- entry of now, or how its last stay ended.
SELECT
{message_columns}
FROM (
  SELECT entry.*, {contentcolumns}, message.header, message.body
  FROM (
    SELECT
      queue, message_id, position, at, acquired_by, delivery_count, priority, expires_at,
      message_bytes, detail,
      CAST(NULL AS STRING) AS outcome,
      CAST(NULL AS BIGINT) AS ended_position,
      CAST(NULL AS TIMESTAMP) AS ended_at,
      CAST(NULL AS STRING) AS ended_by,
      CAST(NULL AS STRING) AS end_detail
    FROM ({entries})
    UNION ALL
    SELECT
      queue, message_id, position, at, CAST(NULL AS STRING) AS acquired_by, delivery_count, priority,
      expires_at, message_bytes, detail, outcome, ended_position, ended_at, ended_by, end_detail
    FROM ({departures})
  ) AS entry
  JOIN (
    SELECT message_id AS id, {contentcolumns}, header, body
    FROM {events}
    WHERE kind = 'enqueued' AND protocol IS NOT NULL
  ) AS message
    ON message.id = entry.message_id
) AS entry
