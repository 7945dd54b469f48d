-- Every `opened` that may fence a row of the journal (ARCHITECTURE: Rule 3): a few rows. The
-- journal is trimmed only up to P, so those after P are in it, and `meta` names the last before.
-- {least} is some P of the past, and an `opened` has no message id: by these two conditions Delta
-- opens few files for it, since it keeps the positions and the count of nulls of each.
SELECT epoch, position FROM {state} WHERE part = 'meta'
UNION ALL
SELECT epoch, position FROM {journal}
WHERE kind = 'opened' AND message_id IS NULL AND position > {least}
