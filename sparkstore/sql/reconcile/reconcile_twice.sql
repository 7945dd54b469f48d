-- Rows of history at positions that are there more than once, and which of them to drop: all but
-- one of the rows that say what another layer says, or what they all say. `is_known` is false
-- where they differ and no other layer tells which is right.
SELECT
  row.position,
  row.file,
  row.row_index,
  row.segment,
  row_number() OVER (
    PARTITION BY row.position
    ORDER BY coalesce(row.digest <> known.digest, false), row.file, row.row_index
  ) > 1 AS is_dropped,
  same.hash_count = 1
    OR bool_or(coalesce(row.digest = known.digest, false)) OVER (PARTITION BY row.position)
    AS is_known
FROM {rows} AS row
JOIN (
  SELECT position, count(DISTINCT digest) AS hash_count
  FROM {rows}
  GROUP BY position
  HAVING count(*) > 1
) AS same ON same.position = row.position
LEFT JOIN {known} AS known ON known.position = row.position
