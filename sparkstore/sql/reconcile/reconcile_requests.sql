-- Members whose requests do not rise with the positions of their last records: where, first. A
-- request that is there twice was done twice.
SELECT member, min(place) AS position
FROM (
  SELECT member, place, first, max(last) OVER (
    PARTITION BY member ORDER BY block ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
  ) AS before, falls
  FROM (
    SELECT
      member,
      block,
      min(position) AS place,
      min(request) AS first,
      max(request) AS last,
      array_sort(array_agg(struct(position, request))).request
        <> array_sort(collect_set(request)) AS falls
    FROM (
      SELECT member, request, position, position div 65536 AS block
      FROM {records}
      WHERE member IS NOT NULL AND request IS NOT NULL AND position >= {start}
    )
    GROUP BY member, block
  )
)
WHERE falls OR first <= before
GROUP BY member
ORDER BY member
