-- Every entry of one side, as the views fold it.
SELECT
  queue, message_id, position, at, acquired_by, delivery_count, priority, expires_at, message_bytes,
  detail
FROM entries
