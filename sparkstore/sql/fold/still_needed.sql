-- Rows of some segments of history that are needed, however old: those that bring the content of a
-- message that is on a queue or staged, and each `opened`, by which a start knows whose epoch it was.
SELECT history.segment, history.position
FROM {history} AS history
LEFT SEMI JOIN (SELECT message_id FROM {state} WHERE part IN ('entry', 'staged')) AS entry
  ON entry.message_id = history.message_id
WHERE history.segment IN ({segments})
  AND (history.kind = 'content' OR history.kind = 'enqueued' AND history.protocol IS NOT NULL)
UNION ALL
SELECT segment, position FROM {history} WHERE segment IN ({segments}) AND kind = 'opened'
