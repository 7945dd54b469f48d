-- Every `opened` that may fence a row of the journal (ARCHITECTURE: Rule 3): a few rows. The
-- journal is trimmed only up to P, so those after P are in it, and `meta` names the last before.
SELECT epoch, position FROM {state} WHERE part = 'meta'
UNION ALL
SELECT epoch, position FROM {journal} WHERE kind = 'opened'
