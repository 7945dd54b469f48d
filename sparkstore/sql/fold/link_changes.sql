-- What becomes of links and of the deliveries that they remember, as rows for the MERGE. A delivery
-- is dropped only if `state` has it: of many that a step began and settled nothing is left.
SELECT 'link' AS part, exchange, CAST(NULL AS STRING) AS binding_key, change, position, at, detail
FROM touched_links
WHERE binding_key IS NULL
UNION ALL
SELECT 'delivery', exchange, binding_key, change, NULL, NULL, detail
FROM delivered
WHERE change = 'put'
UNION ALL
SELECT 'delivery', exchange, binding_key, 'drop', NULL, NULL, NULL
FROM ended_deliveries
