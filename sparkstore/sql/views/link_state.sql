-- Every link, now; `at` is when it was detached, null while it is attached.
SELECT
  link.exchange AS link,
  link.position,
  IF(touched.change IS NULL, link.at, touched.at) AS at,
  link.detail
FROM {state} AS link
LEFT JOIN touched_links AS touched
  ON touched.exchange = link.exchange AND touched.binding_key IS NULL
WHERE link.part = 'link'
  AND (SELECT whole FROM guard)
  AND (touched.change IS NULL OR touched.change = 'hold')
UNION ALL
SELECT exchange AS link, position, at, detail
FROM touched_links
WHERE change = 'put' AND binding_key IS NULL
