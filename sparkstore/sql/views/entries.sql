-- Every message on every queue, now: the state as the tail left it, and what the tail put there.
SELECT {touchedhint}
  entry.queue,
  entry.message_id,
  entry.position,
  entry.at,
  IF(touched.change IS NULL, entry.acquired_by, touched.acquired_by) AS acquired_by,
  coalesce(touched.delivery_count, entry.delivery_count) AS delivery_count,
  entry.priority,
  entry.expires_at,
  entry.message_bytes,
  entry.segment,
  coalesce(touched.detail, entry.detail) AS detail
FROM {state} AS entry
LEFT JOIN (
  SELECT queue, message_id, change, acquired_by, delivery_count, detail FROM folded WHERE was_there
) AS touched
  ON touched.message_id = entry.message_id
  -- Not as an equation: then the key of the join is one number, and a look-up three times as fast.
  AND touched.queue >= entry.queue AND touched.queue <= entry.queue
LEFT ANTI JOIN destroyed_queues ON destroyed_queues.queue = entry.queue
WHERE entry.part = 'entry'
  AND {entriesguard}
  AND (touched.change IS NULL OR touched.change = 'hold')
UNION ALL
SELECT
  queue, message_id, position, at, acquired_by, delivery_count, priority, expires_at, message_bytes,
  segment, detail
FROM folded
WHERE change = 'put'
