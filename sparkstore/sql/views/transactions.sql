-- One row for each branch of a distributed transaction that is in doubt: prepared and not decided,
-- or decided by an operator and not by its coordinator. One look at wiring, and no union of two: over
-- some plans Spark cannot tell the columns of the second from those of the first.
SELECT
  binding_key AS xid,
  CASE WHEN exchange IS NULL THEN 'prepared' ELSE get_json_object(detail, '$.state') END AS state,
  timestamp_micros(CAST(get_json_object(detail, '$.since_us') AS BIGINT)) AS since,
  CASE
    WHEN exchange IS NULL THEN get_json_object(detail, '$.member')
    ELSE get_json_object(detail, '$.by')
  END AS holder,
  CASE
    WHEN exchange IS NULL THEN coalesce(
      CAST(get_json_object(detail, '$.count') AS INT),
      json_array_length(get_json_object(detail, '$.operations'))
    )
    ELSE 0
  END AS operations,
  array_sort(array_distinct(CASE
    WHEN exchange IS NULL
    THEN from_json(get_json_object(detail, '$.operations'), 'ARRAY<STRUCT<queue: STRING>>').queue
    ELSE concat(
      from_json(get_json_object(detail, '$.puts'), 'ARRAY<STRING>'),
      from_json(get_json_object(detail, '$.takes'), 'ARRAY<STRING>')
    )
  END)) AS queues,
  position
FROM wiring
WHERE
  binding_key IS NOT NULL
  AND queue IS NULL
  AND (exchange IS NULL OR exchange = 'sparkstore.heuristic')
