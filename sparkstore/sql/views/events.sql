-- Every row that counts, with its content, from the oldest that history keeps; guarded. History ends
-- at P or after it: so {least}, some P of the past, keeps Delta from opening what was moved long ago.
SELECT * FROM {history} WHERE {eventsguard}
UNION ALL
SELECT /*+ BROADCAST(epochs) */ journal.*
FROM {journal} AS journal
LEFT ANTI JOIN {epochs} AS epochs
  ON epochs.epoch > journal.epoch AND epochs.position <= journal.position
WHERE journal.position > {least}
  AND journal.position > {inhistory}
