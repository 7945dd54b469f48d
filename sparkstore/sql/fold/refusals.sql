-- Every refusal of each member, from the state and from the tail, however old.
SELECT member, request, max(detail) AS detail
FROM (
  SELECT told.member, CAST(told.request AS BIGINT) AS request, told.detail
  FROM (
    SELECT member, explode(from_json(detail, 'map<string, string>')) AS (request, detail)
    FROM {state}
    WHERE part = 'member'
  ) AS told
  UNION ALL
  SELECT member, request, detail
  FROM tail
  WHERE kind = 'refused' AND request IS NOT NULL AND member IS NOT NULL
)
GROUP BY member, request
