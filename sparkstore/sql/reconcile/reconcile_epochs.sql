-- Epochs whose records are not one run of positions that their `opened` begins.
SELECT epoch, first, last, opened, opened_count, before
FROM (
  SELECT *, lag(last) OVER (ORDER BY epoch) AS before
  FROM (
    SELECT
      epoch,
      min(position) AS first,
      max(position) AS last,
      min(position) FILTER (WHERE kind = 'opened') AS opened,
      count_if(kind = 'opened') AS opened_count
    FROM {records}
    WHERE position >= {start}
    GROUP BY epoch
  )
)
WHERE first <= before OR opened_count > 1 OR opened > first
  OR (opened IS NULL AND first > {start})
ORDER BY first
