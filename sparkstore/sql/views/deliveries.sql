-- One row for each unsettled delivery of a link in `links`. What we receive is what the link
-- remembers; what we send is an entry that the link has acquired. `tag` is the delivery tag in
-- hexadecimal (of what we send, the message id in 8 bytes); `state` what its outcome is, as JSON,
-- NULL while it has none.
SELECT
  parts[0] AS container,
  parts[1] AS name,
  parts[2] AS role,
  tag,
  queue,
  message_id,
  state
FROM (
  SELECT
    from_json(link, 'array<string>') AS parts,
    tag,
    get_json_object(detail, '$.queue') AS queue,
    CAST(get_json_object(detail, '$.message_id') AS BIGINT) AS message_id,
    detail AS state
  FROM link_deliveries
  UNION ALL
  SELECT
    from_json(entry.acquired_by, 'array<string>'),
    lower(lpad(hex(entry.message_id), 16, '0')),
    entry.queue,
    entry.message_id,
    CAST(NULL AS STRING)
  FROM entries AS entry
  LEFT SEMI JOIN link_state AS link ON link.link = entry.acquired_by
  WHERE entry.acquired_by IS NOT NULL
)
