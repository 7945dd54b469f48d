-- The last position of each kind for each entry in tail, and what came with it.
SELECT
  queue,
  message_id,
  min(position) AS first,
  min(position) FILTER (WHERE kind = 'enqueued') AS first_enqueued,
  max(position) FILTER (WHERE kind = 'enqueued') AS enqueued,
  max(position) FILTER (WHERE kind = 'dequeued') AS dequeued,
  max(position) FILTER (WHERE kind IN ('acquired', 'released')) AS held,
  max(position) FILTER (WHERE kind = 'released') AS released,
  max_by(holder, position) FILTER (WHERE kind IN ('acquired', 'released')) AS holder,
  max_by(delivery_count, position) FILTER (WHERE kind = 'released') AS delivery_count,
  max_by(at, position) FILTER (WHERE kind = 'enqueued') AS at,
  max_by(priority, position) FILTER (WHERE kind = 'enqueued') AS priority,
  max_by(expires_at, position) FILTER (WHERE kind = 'enqueued') AS expires_at,
  max_by(header_bytes + body_bytes, position) FILTER (WHERE kind = 'enqueued') AS message_bytes
FROM tail
WHERE kind IN ('enqueued', 'dequeued', 'acquired', 'released')
GROUP BY queue, message_id
