-- The primary's records after position {after} that count: history up to its end {moved}, then the
-- journal, each at the version that was looked at. Only rows that count are in history.
SELECT * FROM {history} AS history
WHERE history.position > {after}
UNION ALL
SELECT * FROM {journal} AS journal
WHERE journal.position > greatest({after}, {moved}) AND {counts}
