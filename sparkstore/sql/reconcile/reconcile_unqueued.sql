-- Entries on a queue that does not exist, by queue; and entries that are there twice.
SELECT queue, 'no such queue' AS what, count(*) AS entry_count, min(message_id) AS message_id
FROM {entries} AS entry
LEFT ANTI JOIN {wiring} AS wired
  ON wired.queue = entry.queue AND wired.exchange IS NULL
GROUP BY queue
UNION ALL
SELECT queue, 'twice' AS what, count(*) AS entry_count, min(message_id) AS message_id
FROM (
  SELECT queue, message_id FROM {entries} GROUP BY queue, message_id HAVING count(*) > 1
)
GROUP BY queue
