-- One row for each branch of a distributed transaction that is in doubt: prepared and not decided.
SELECT
  binding_key AS xid,
  'prepared' AS state,
  timestamp_micros(CAST(get_json_object(detail, '$.since_us') AS BIGINT)) AS since,
  json_array_length(get_json_object(detail, '$.operations')) AS operations,
  position
FROM wiring
WHERE binding_key IS NOT NULL AND exchange IS NULL AND queue IS NULL
