-- One row for each queue, by the columns that `sparkstore.queue_columns` declares.
SELECT
  {queuecolumns}
FROM wiring AS wiring
LEFT JOIN (
  SELECT
    queue,
    {queuewholes}
  FROM (
    SELECT
      queue, acquired_by,
      {queueparts}
    FROM entries
    GROUP BY queue, acquired_by
  )
  GROUP BY queue
) AS held ON held.queue = wiring.queue
WHERE wiring.queue IS NOT NULL AND wiring.exchange IS NULL
