-- Rows after P that count: no `opened` of a higher epoch has a position at or before theirs.
SELECT /*+ BROADCAST(opening) */ raw.*
FROM raw
LEFT ANTI JOIN openings AS opening
  ON opening.epoch > raw.epoch AND opening.position <= raw.position
