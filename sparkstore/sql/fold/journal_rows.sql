-- Rows of the journal after position {after} that count, at the version that was looked at.
SELECT * FROM {journal} AS journal
WHERE journal.position > {after} AND {counts}
