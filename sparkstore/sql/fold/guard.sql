-- True if the rows after P have no gap, else an error: a query that began before a compaction
-- and a trim, and read one table before and another after them, is told so. One row, read as a
-- scalar sub-query by the scans of state and of content: no filter of a user gets into it, and no
-- optimiser can keep such a scan and drop it. (A condition above a shuffle would not do: if
-- nothing comes out of the shuffle, Spark drops what stands above it.) The sum finds a gap that a
-- repeated position would hide.
SELECT
  CASE
    WHEN first < {least} THEN raise_error(
      'sparkstore: records are missing after position ' || first
      || ': the state is older than when these views were registered; register them anew'
    )
    WHEN row_count = last - first AND total = (last - first) * (last + first + 1) / 2 THEN true
    ELSE raise_error(
      'sparkstore: records are missing after position ' || first
      || ': the tables were compacted and trimmed while this query ran; run it again'
    )
  END AS whole
FROM (
  SELECT row_count, total, first, coalesce(last, first) AS last
  FROM (
    SELECT
      coalesce(sum(row_count), 0) AS row_count,
      coalesce(sum(total), 0) AS total,
      max(last) AS last,
      {folded} AS first
    FROM changes
  )
)
