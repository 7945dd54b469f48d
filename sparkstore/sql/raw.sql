-- Every row after P without its content: history first, then the journal; with the rows of
-- fenced writers. Delta answers these `max(position)` from its log while the query is planned,
-- so files that end before are not opened.
SELECT
  position, epoch, kind, at, queue, message_id, holder, delivery_count, priority, expires_at,
  header_bytes, body_bytes, exchange, binding_key, detail
FROM {history}
WHERE position > coalesce((SELECT max(position) FROM {state} WHERE part = 'meta'), 0)
UNION ALL
SELECT
  position, epoch, kind, at, queue, message_id, holder, delivery_count, priority, expires_at,
  header_bytes, body_bytes, exchange, binding_key, detail
FROM {journal}
WHERE position > coalesce((SELECT max(position) FROM {state} WHERE part = 'meta'), 0)
  AND position > coalesce((SELECT max(position) FROM {history}), 0)
