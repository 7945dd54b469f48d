-- Every row that counts, with its content, from the oldest that history keeps; guarded.
SELECT * FROM {history} WHERE {eventsguard}
UNION ALL
SELECT /*+ BROADCAST(opening) */ journal.*
FROM {journal} AS journal
LEFT ANTI JOIN opening
  ON opening.epoch > journal.epoch AND opening.position <= journal.position
WHERE journal.position > coalesce((SELECT max(position) FROM {history}), 0)
