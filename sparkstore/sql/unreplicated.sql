-- The primary's records after position {after} that count: history up to its end {moved}, then the
-- journal, each at the version that was looked at. Openings as in unmoved.sql.
SELECT * FROM {history} AS history
WHERE history.position > {after}
UNION ALL
SELECT /*+ BROADCAST(opening) */ journal.*
FROM {journal} AS journal
LEFT ANTI JOIN (
  SELECT epoch, position FROM {state} WHERE part = 'meta'
  UNION ALL
  SELECT epoch, position FROM {history} WHERE kind = 'opened' AND position > {folded}
  UNION ALL
  SELECT epoch, position FROM {journal} WHERE kind = 'opened'
) AS opening
  ON opening.epoch > journal.epoch AND opening.position <= journal.position
WHERE journal.position > greatest({after}, {moved})
