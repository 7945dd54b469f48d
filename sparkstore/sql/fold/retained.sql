-- What a segment of history keeps. The positions, at most half of a segment's, go to the rows: no
-- body goes through a shuffle.
SELECT /*+ BROADCAST(needed) */ history.*
FROM {history} AS history
LEFT SEMI JOIN ({needed}) AS needed ON needed.position = history.position
WHERE history.segment = {segment}
