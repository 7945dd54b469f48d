-- How the last stay of each message on each queue ended: by its `dequeued`, else with its queue. Only an
-- end since history has no gaps counts: of what is older, the return to the queue may be gone. A stay
-- whose begin is gone has no position.
SELECT
  stay.queue,
  stay.message_id,
  stay.enqueued AS position,
  stay.at,
  IF(stay.released > coalesce(stay.enqueued, 0), stay.delivery_count, 0) AS delivery_count,
  stay.priority,
  stay.expires_at,
  stay.message_bytes,
  IF(stay.annotated >= coalesce(stay.enqueued, 0), stay.annotations, NULL) AS detail,
  CASE
    WHEN NOT stay.was_dequeued THEN 'queue destroyed'
    WHEN stay.end_detail IS NULL THEN 'accepted'
    ELSE coalesce(get_json_object(stay.end_detail, '$.outcome'), 'other')
  END AS outcome,
  IF(stay.was_dequeued, stay.dequeued, destruction.position) AS ended_position,
  IF(stay.was_dequeued, stay.ended_at, destruction.at) AS ended_at,
  IF(stay.was_dequeued, stay.ended_by, NULL) AS ended_by,
  IF(stay.was_dequeued, stay.end_detail, NULL) AS end_detail
FROM (
  SELECT *, coalesce(dequeued > coalesce(enqueued, 0), false) AS was_dequeued
  FROM (
    SELECT
      queue,
      message_id,
      max(position) FILTER (WHERE kind = 'enqueued') AS enqueued,
      max(position) FILTER (WHERE kind = 'dequeued') AS dequeued,
      max(position) FILTER (WHERE kind = 'released') AS released,
      max_by(delivery_count, position) FILTER (WHERE kind = 'released') AS delivery_count,
      max(position) FILTER (WHERE kind <> 'dequeued' AND detail IS NOT NULL) AS annotated,
      max_by(detail, position) FILTER (WHERE kind <> 'dequeued' AND detail IS NOT NULL)
        AS annotations,
      max_by(at, position) FILTER (WHERE kind = 'enqueued') AS at,
      max_by(priority, position) FILTER (WHERE kind = 'enqueued') AS priority,
      max_by(expires_at, position) FILTER (WHERE kind = 'enqueued') AS expires_at,
      max_by(header_bytes + body_bytes, position) FILTER (WHERE kind = 'enqueued')
        AS message_bytes,
      max_by(at, position) FILTER (WHERE kind = 'dequeued') AS ended_at,
      max_by(coalesce(holder, member), position) FILTER (WHERE kind = 'dequeued') AS ended_by,
      max_by(detail, position) FILTER (WHERE kind = 'dequeued') AS end_detail
    FROM {events}
    WHERE kind IN ('enqueued', 'dequeued', 'released')
    GROUP BY queue, message_id
  )
) AS stay
LEFT JOIN (
  SELECT
    queue, position, at, lag(position) OVER (PARTITION BY queue ORDER BY position) AS one_before
  FROM {events}
  WHERE kind = 'destroyed' AND message_id IS NULL AND queue IS NOT NULL AND exchange IS NULL
) AS destruction
  ON destruction.queue = stay.queue
  AND destruction.position > stay.enqueued
  AND coalesce(destruction.one_before, 0) < stay.enqueued
WHERE IF(stay.was_dequeued, stay.dequeued, destruction.position)
  >= coalesce((SELECT max(history_start) FROM {state} WHERE part = 'meta'), 1)
