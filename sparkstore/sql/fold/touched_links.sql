-- What tail makes of each link that it names, by its text, and of each delivery, by its tag, too.
-- `change` is
--   put    it is as this row says, whatever it was before; a delivery, unless its link was closed since
--   hold   the link was there before and still is, detached
--   drop   it is not there
-- `closed` is where the link was closed last: deliveries from before are forgotten.
SELECT
  exchange,
  binding_key,
  CASE
    WHEN binding_key IS NOT NULL THEN IF(made > coalesce(ended, 0), 'put', 'drop')
    WHEN made > coalesce(closed, 0) THEN 'put'
    WHEN closed IS NULL THEN 'hold'
    ELSE 'drop'
  END AS change,
  made AS position,
  IF(ended > coalesce(made, 0), detached_at, NULL) AS at,
  detail,
  closed
FROM (
  SELECT
    holder AS exchange,
    binding_key,
    max(position) FILTER (WHERE kind IN ('attached', 'unsettled')) AS made,
    max(position) FILTER (WHERE kind IN ('detached', 'settled')) AS ended,
    max(position) FILTER (WHERE kind = 'detached' AND detail IS NOT NULL) AS closed,
    max_by(at, position) FILTER (WHERE kind = 'detached') AS detached_at,
    max_by(detail, position) FILTER (WHERE kind IN ('attached', 'unsettled')) AS detail
  FROM tail
  WHERE kind IN ('attached', 'detached', 'unsettled', 'settled')
  GROUP BY holder, binding_key
)
