-- Every row after P without its content, each position once: history first, then the journal,
-- where a row counts if no `opened` of a higher epoch has a position at or before its own. Only
-- rows that count are in history. Delta answers `max(position)` of history from its log while the
-- query is planned. {least} is some P of the past: only a number keeps Delta from reading what was
-- folded long ago. Should P ever fall below it (a broken state was set aside), the guard speaks.
SELECT *
FROM (
  SELECT
    position, epoch, kind, at, queue, message_id, holder, delivery_count, priority, expires_at,
    header_bytes, body_bytes, exchange, binding_key, detail, member, request, protocol
  FROM {newhistory}
  WHERE position > {least}
  {tail_of_journal}
)
WHERE position > {folded}
