-- Rows of the journal after position {after} that count, up to {last}. The few openings go to the
-- rows, not the rows to a shuffle.
SELECT /*+ BROADCAST(opening) */ journal.*
FROM {journal} AS journal
LEFT ANTI JOIN {openings} AS opening
  ON opening.epoch > journal.epoch AND opening.position <= journal.position
WHERE journal.position > {after} AND journal.position <= {last}
