-- Positions that are not there once, as runs of neighbours.
SELECT what, min(position) AS first, max(position) AS last
FROM (
  SELECT what, block, position - row_number() OVER (PARTITION BY what, block ORDER BY position) AS run,
    position
  FROM (
    SELECT
      position,
      position div 1000000 AS block,
      CASE WHEN left_copies = 0 THEN 'missing' WHEN left_copies > 1 THEN 'repeated' ELSE 'unexpected'
      END AS what
    FROM {positions}
  )
)
GROUP BY what, block, run
ORDER BY first
