-- The columns of a message, of `queue_messages` and of `messages`, over one relation `entry`. Content
-- that came in pieces is put together from its `content` rows, but only in a query that names `body`:
-- the correlated sub-query goes with the column. A piece that was sent twice is there twice: a set
-- has it once.
  entry.queue,
  entry.message_id,
  entry.position,
  entry.at AS enqueued_at,
  entry.acquired_by,
  entry.delivery_count,
  entry.priority,
  entry.expires_at,
  entry.message_bytes,
  {endcolumns}
  {contentcolumns},
  transform_values(
    from_json(entry.detail, 'map<string,array<string>>'),
    (key, told) -> IF(
      told[0] = 'timestamp' AND told[1] RLIKE '^[0-9]+$' AND length(told[1]) < 15,
      CAST(timestamp_millis(CAST(told[1] AS BIGINT)) AS STRING),
      told[1]
    )
  ) AS annotations,
  get_json_object(entry.detail, '$.x-opt-death-reason[1]') AS death_reason,
  get_json_object(entry.detail, '$.x-opt-death-queue[1]') AS death_queue,
  try_cast(get_json_object(entry.detail, '$.x-opt-death-attempts[1]') AS INT) AS death_attempts,
  timestamp_millis(
    try_cast(get_json_object(entry.detail, '$.x-opt-death-time[1]') AS BIGINT)
  ) AS died_at,
  timestamp_millis(
    try_cast(get_json_object(entry.detail, '$.x-opt-delivery-time[1]') AS BIGINT)
  ) AS visible_at,
  entry.header,
  coalesce(
    entry.body,
    (
      SELECT unhex(array_join(transform(
        array_sort(collect_set(struct(piece.body_offset, hex(piece.body) AS digits))),
        piece -> piece.digits
      ), ''))
      FROM {events} AS piece
      WHERE piece.kind = 'content' AND piece.message_id = entry.message_id
    )
  ) AS body
