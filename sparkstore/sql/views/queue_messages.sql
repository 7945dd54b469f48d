-- One row for each message on each queue, available or acquired.
SELECT
{message_columns}
FROM (
  SELECT {entryhint}
    entry.*,
    message.* EXCEPT (queue, message_id)
  FROM ({entries}) AS entry
  JOIN ({contents}) AS message
    ON message.message_id = entry.message_id AND message.queue = entry.queue
) AS entry
