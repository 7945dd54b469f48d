-- Content that came in pieces for a message that was never enqueued, and whose header did not come
-- with them: such a one is staged, and a member of the store knows it. A writer that still runs may
-- enqueue it yet; one whose epoch is over cannot: what it staged was in its memory.
SELECT
  piece.message_id,
  count(*) AS piece_count,
  sum(piece.piece_bytes) AS piece_bytes,
  min(piece.position) AS first,
  max(piece.position) AS last,
  max(piece.epoch) AS epoch
FROM {records} AS piece
LEFT ANTI JOIN (
  SELECT message_id FROM {records} WHERE kind IN ('content', 'enqueued') AND protocol IS NOT NULL
) AS message ON message.message_id = piece.message_id
WHERE piece.kind = 'content' AND piece.epoch < {ended}
GROUP BY piece.message_id
ORDER BY first
