-- Every record, each layer's part of it: history, then what counts in the journal after its end.
-- `piece_bytes` is how much of a body the row brings.
SELECT
  position, epoch, kind, queue, message_id, `transaction`, protocol, body_bytes, member, request,
  body_offset, octet_length(body) AS piece_bytes
FROM {history}
UNION ALL
SELECT
  position, epoch, kind, queue, message_id, `transaction`, protocol, body_bytes, member, request,
  body_offset, piece_bytes
FROM {journal}
WHERE position > {after}
