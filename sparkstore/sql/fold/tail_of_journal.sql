-- The rest of `tail`: what is not in history yet, but for rows of a fenced writer.
UNION ALL
SELECT /*+ BROADCAST(epochs) */
  position, epoch, kind, at, queue, message_id, holder, delivery_count, priority, expires_at,
  header_bytes, body_bytes, exchange, binding_key, detail, member, request, protocol
FROM {journal} AS journal
LEFT ANTI JOIN epochs
  ON epochs.epoch > journal.epoch AND epochs.position <= journal.position
WHERE journal.position > {least}
  AND journal.position > {inhistory}
