-- The primary's records after position {after} that count: history up to its end {moved}, then the
-- journal, each at the version that was looked at. The few openings go to the rows.
SELECT * FROM {history} AS history
WHERE history.position > {after}
UNION ALL
SELECT /*+ BROADCAST(opening) */ journal.*
FROM {journal} AS journal
LEFT ANTI JOIN {openings} AS opening
  ON opening.epoch > journal.epoch AND opening.position <= journal.position
WHERE journal.position > greatest({after}, {moved})
