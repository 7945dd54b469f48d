-- One row for each message on each queue, available or acquired. Content that came in pieces is
-- put together from its `content` rows, but only in a query that names `body`: the correlated
-- sub-query goes with the column. A piece that was sent twice is there twice: a set has it once.
SELECT {entryhint}
  entry.queue,
  entry.message_id,
  entry.position,
  entry.at AS enqueued_at,
  entry.acquired_by,
  entry.delivery_count,
  entry.priority,
  entry.expires_at,
  entry.message_bytes,
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
  transform_values(
    from_json(entry.detail, 'map<string,array<string>>'),
    (key, told) -> IF(
      told[0] = 'timestamp' AND told[1] RLIKE '^[0-9]+$' AND length(told[1]) < 15,
      CAST(timestamp_millis(CAST(told[1] AS BIGINT)) AS STRING),
      told[1]
    )
  ) AS annotations,
  message.header,
  coalesce(
    message.body,
    (
      SELECT unhex(array_join(transform(
        array_sort(collect_set(struct(piece.body_offset, hex(piece.body) AS digits))),
        piece -> piece.digits
      ), ''))
      FROM events AS piece
      WHERE piece.kind = 'content' AND piece.message_id = message.message_id
    )
  ) AS body
FROM entries AS entry
JOIN events AS message
  ON message.message_id = entry.message_id
WHERE message.kind = 'enqueued' AND message.protocol IS NOT NULL
