-- One row for each message that left a queue, is not on it now, and is in history still; not for
-- one that was moved or dead-lettered, as it lives on elsewhere. `replayed_to` names the queues
-- that a copy of it was put on by `sparkstore replay`. The body of a message that came in pieces
-- is NULL here.
SELECT
  departed.queue,
  departed.message_id,
  departed.position,
  departed.at AS dequeued_at,
  departed.holder,
  departed.detail AS outcome,
  message.at AS enqueued_at,
  coalesce(copies.replayed_to, array()) AS replayed_to,
  message.priority,
  message.expires_at,
  message.header_bytes + message.body_bytes AS message_bytes,
  message.protocol,
  message.durable,
  message.created_at,
  message.content_type,
  message.content_encoding,
  message.correlation_id,
  message.reply_to,
  message.subject,
  message.`to`,
  message.user_id,
  message.app_id,
  message.message_type,
  message.amqp_message_id,
  message.group_id,
  message.header_bytes,
  message.body_bytes,
  message.properties,
  message.header,
  message.body
FROM (
  SELECT
    queue,
    message_id,
    max(position) AS position,
    max_by(at, position) AS at,
    max_by(holder, position) AS holder,
    max_by(detail, position) AS detail
  FROM events
  WHERE kind = 'dequeued'
  GROUP BY queue, message_id
) AS departed
JOIN events AS message
  ON message.message_id = departed.message_id
LEFT JOIN (
  SELECT
    CAST(properties['sparkstore.replayed'] AS BIGINT) AS message_id,
    collect_set(queue) AS replayed_to
  FROM events
  WHERE kind = 'enqueued' AND properties['sparkstore.replayed'] IS NOT NULL
  GROUP BY CAST(properties['sparkstore.replayed'] AS BIGINT)
) AS copies
  ON copies.message_id = departed.message_id
LEFT ANTI JOIN entries AS entry
  ON entry.queue = departed.queue AND entry.message_id = departed.message_id
WHERE message.kind = 'enqueued' AND message.protocol IS NOT NULL
  AND coalesce(get_json_object(departed.detail, '$.outcome'), '') NOT IN ('moved', 'dead-lettered')
