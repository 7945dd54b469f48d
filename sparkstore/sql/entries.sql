-- Every message on every queue, now: the state as the tail left it, and what the tail put there.
SELECT
  entry.queue,
  entry.message_id,
  entry.position,
  entry.at,
  IF(folded.change IS NULL, entry.acquired_by, folded.acquired_by) AS acquired_by,
  coalesce(folded.delivery_count, entry.delivery_count) AS delivery_count,
  entry.priority,
  entry.expires_at,
  entry.message_bytes
FROM {state} AS entry
LEFT JOIN folded AS folded
  ON folded.queue = entry.queue AND folded.message_id = entry.message_id
LEFT ANTI JOIN dropped AS dropped ON dropped.queue = entry.queue
WHERE entry.part = 'entry'
  AND (SELECT whole FROM guard)
  AND (folded.change IS NULL OR folded.change = 'hold')
UNION ALL
SELECT
  queue, message_id, position, at, acquired_by, delivery_count, priority, expires_at, message_bytes
FROM folded
WHERE change = 'put'
