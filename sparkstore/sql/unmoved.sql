-- Rows of the journal after position {after} that count, up to {last}. The few openings go to the
-- rows, not the rows to a shuffle.
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
WHERE journal.position > {after} AND journal.position <= {last}
