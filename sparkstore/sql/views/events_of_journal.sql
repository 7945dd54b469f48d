-- The rest of `events`: what is not in history yet, but for rows of a fenced writer.
UNION ALL
SELECT /*+ BROADCAST(epochs) */ journal.*
FROM {journal} AS journal
LEFT ANTI JOIN {epochs} AS epochs
  ON epochs.epoch > journal.epoch AND epochs.position <= journal.position
WHERE journal.position > {least}
  AND journal.position > {inhistory}
