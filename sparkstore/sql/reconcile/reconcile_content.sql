-- Messages on a queue whose header is nowhere, or whose pieces are not as long as their body. A piece
-- may be there twice: each offset counts once.
SELECT live.message_id, live.queue, live.position, found.body_bytes, found.found_bytes
FROM (
  SELECT message_id, min_by(queue, position) AS queue, min(position) AS position
  FROM {entries}
  GROUP BY message_id
) AS live
LEFT JOIN (
  SELECT
    message_id,
    max(body_bytes) AS body_bytes,
    coalesce(sum(piece_bytes), 0) AS found_bytes
  FROM (
    SELECT
      message_id,
      max(body_bytes) FILTER (WHERE kind = 'enqueued') AS body_bytes,
      max(piece_bytes) AS piece_bytes
    FROM {records}
    WHERE (kind = 'content' OR (kind = 'enqueued' AND protocol IS NOT NULL))
      AND message_id BETWEEN {least} AND {largest}
    GROUP BY message_id, kind, body_offset
  )
  GROUP BY message_id
) AS found ON found.message_id = live.message_id
WHERE found.body_bytes IS NULL OR found.body_bytes <> found.found_bytes
