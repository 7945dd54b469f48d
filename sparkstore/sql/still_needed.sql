-- Rows of some segments of history that bring the content of a message that is on a queue. The
-- entries go to the rows, so that no body goes through a shuffle.
SELECT /*+ BROADCAST(entry) */ history.*
FROM {history} AS history
LEFT SEMI JOIN (SELECT message_id FROM {state} WHERE part = 'entry') AS entry
  ON entry.message_id = history.message_id
WHERE history.segment IN ({segments})
  AND (history.kind = 'content' OR history.kind = 'enqueued' AND history.protocol IS NOT NULL)
