-- One row for each branch of a distributed transaction that is in doubt: prepared and not decided,
-- or decided by an operator and not by its coordinator.
SELECT
  binding_key AS xid,
  'prepared' AS state,
  timestamp_micros(CAST(get_json_object(detail, '$.since_us') AS BIGINT)) AS since,
  get_json_object(detail, '$.member') AS holder,
  json_array_length(get_json_object(detail, '$.operations')) AS operations,
  position
FROM wiring
WHERE binding_key IS NOT NULL AND exchange IS NULL AND queue IS NULL
UNION ALL
SELECT
  binding_key,
  get_json_object(detail, '$.state'),
  timestamp_micros(CAST(get_json_object(detail, '$.since_us') AS BIGINT)),
  get_json_object(detail, '$.by'),
  0,
  position
FROM wiring
WHERE exchange = 'sparkstore.heuristic' AND queue IS NULL AND binding_key IS NOT NULL
