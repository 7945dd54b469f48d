-- What tail makes of each entry it names. `change` is
--   put    the entry is as this row says, whatever it was before
--   hold   it was there before and still is; who holds it changed, perhaps its delivery count
--   drop   it is not there
-- `was_there` is false if it cannot have been there before the tail.
SELECT
  changes.queue,
  changes.message_id,
  CASE
    WHEN enqueued > coalesce(dequeued, 0) AND enqueued > coalesce(destroyed, 0) THEN 'put'
    WHEN enqueued IS NULL AND dequeued IS NULL AND destroyed IS NULL THEN 'hold'
    ELSE 'drop'
  END AS change,
  first_enqueued IS NULL OR first < first_enqueued OR destroyed IS NOT NULL AS was_there,
  enqueued AS position,
  at,
  IF(held > coalesce(enqueued, 0), holder, NULL) AS acquired_by,
  CASE
    WHEN enqueued IS NULL THEN delivery_count
    WHEN released > enqueued THEN delivery_count
    ELSE 0
  END AS delivery_count,
  priority,
  expires_at,
  message_bytes,
  segment,
  IF(annotated >= coalesce(enqueued, 0), annotations, NULL) AS detail
FROM changes
LEFT JOIN destroyed_queues ON changes.queue = destroyed_queues.queue
WHERE first IS NOT NULL
