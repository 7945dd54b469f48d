-- What the records say of the meta row at a position; null where none of them says it.
SELECT
  max_by(epoch, position) FILTER (WHERE kind = 'opened') AS epoch,
  max_by(message_id, position) FILTER (WHERE kind = 'ids_reserved') AS message_id,
  max_by(segment, position) AS segment
FROM {history}
WHERE position <= {position} AND position >= {start}
