-- What tail makes of each queue, exchange and binding it names: put or drop.
SELECT
  queue,
  exchange,
  binding_key,
  IF(max_by(kind, position) IN ('created', 'bound'), 'put', 'drop') AS change,
  max(position) AS position,
  coalesce(max_by(detail, position), '{}') AS detail
FROM tail
WHERE kind IN ('created', 'destroyed', 'bound', 'unbound')
GROUP BY queue, exchange, binding_key
