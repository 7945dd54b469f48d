-- Every event of every message that history and the journal still hold. A queue's destruction
-- drops its messages without an event of their own.
SELECT
  message_id, position, at, kind, queue, holder, delivery_count, `transaction`, detail,
  header_bytes + body_bytes AS message_bytes, body_offset, epoch, segment,
  properties['traceparent'] AS traceparent
FROM events
WHERE kind IN ('content', 'enqueued', 'dequeued', 'acquired', 'released')
