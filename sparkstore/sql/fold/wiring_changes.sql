-- What tail makes of each queue, exchange, binding and configured object it names: put or drop.
SELECT
  queue,
  exchange,
  binding_key,
  IF(made > coalesce(unmade, 0), 'put', 'drop') AS change,
  greatest(made, unmade) AS position,
  coalesce(detail, '{}') AS detail
FROM changes
WHERE made IS NOT NULL OR unmade IS NOT NULL
