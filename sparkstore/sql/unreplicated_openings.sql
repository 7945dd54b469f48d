-- Every `opened` that may fence rows of the journal (Rule 3): a few rows.
SELECT epoch, position FROM {state} WHERE part = 'meta'
UNION ALL
SELECT epoch, position FROM {history} WHERE kind = 'opened' AND position > {folded}
UNION ALL
SELECT epoch, position FROM {journal} WHERE kind = 'opened'
