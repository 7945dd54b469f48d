-- Entries that somebody holds, by holder.
SELECT
  acquired_by AS holder, count(*) AS entry_count, min(message_id) AS message_id,
  min_by(queue, message_id) AS queue
FROM {entries}
WHERE acquired_by IS NOT NULL
GROUP BY acquired_by
ORDER BY holder
