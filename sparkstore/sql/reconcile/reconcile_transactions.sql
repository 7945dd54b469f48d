-- Transactions of which not all is there: all records of one have positions in a row in one epoch
-- (they are one group of the log), and a fenced writer's commit counts whole or not at all.
SELECT
  epoch,
  `transaction`,
  min(position) FILTER (WHERE counts) AS first,
  max(position) FILTER (WHERE counts) AS last,
  count_if(counts) AS record_count,
  count_if(NOT counts) AS fenced_count
FROM (
  SELECT epoch, `transaction`, position, true AS counts
  FROM {records}
  WHERE `transaction` IS NOT NULL AND position >= {start}
  UNION ALL
  SELECT epoch, `transaction`, position, false AS counts
  FROM {fenced}
  WHERE `transaction` IS NOT NULL
)
GROUP BY epoch, `transaction`
HAVING record_count > 0 AND (record_count <> last - first + 1 OR fenced_count > 0)
ORDER BY epoch, first
