-- Every `opened` that may fence a row after P (Rule 3): a few rows.
SELECT epoch, position FROM {state} WHERE part = 'meta'
UNION ALL
SELECT epoch, position FROM raw WHERE kind = 'opened'
