-- One row for each AMQP link that outlives its connection (durability `configuration` or `unsettled-state`), by the peer's
-- container, its name and our end. `source` and `target` are addresses, the rest of the termini is
-- in `detail`; `unsettled` counts its rows in `deliveries`. One grouping and no join, which Spark
-- takes long to plan.
SELECT
  parts[0] AS container,
  parts[1] AS name,
  parts[2] AS role,
  get_json_object(detail, '$.source.address') AS source,
  get_json_object(detail, '$.target.address') AS target,
  CASE get_json_object(detail, '$.durability')
    WHEN '0' THEN 'none' WHEN '1' THEN 'configuration' WHEN '2' THEN 'unsettled-state'
  END AS durability,
  get_json_object(detail, '$.expiry_policy') AS expiry_policy,
  detached_at IS NULL AS attached,
  unsettled,
  detached_at,
  detail
FROM (
  SELECT
    from_json(link, 'array<string>') AS parts,
    max(at) AS detached_at,
    max(detail) AS detail,
    count_if(NOT is_link) AS unsettled
  FROM (
    SELECT link, at, detail, true AS is_link FROM link_state
    UNION ALL
    SELECT link, NULL, NULL, false FROM link_deliveries
    UNION ALL
    SELECT acquired_by, NULL, NULL, false FROM entries WHERE acquired_by IS NOT NULL
  )
  GROUP BY link
  HAVING bool_or(is_link)
)
