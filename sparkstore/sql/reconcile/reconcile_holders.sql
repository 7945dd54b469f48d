-- Who holds how many entries.
SELECT
  holder, count(*) AS entry_count, min(message_id) AS message_id,
  min_by(queue, message_id) AS queue
FROM {held}
GROUP BY holder
ORDER BY holder
