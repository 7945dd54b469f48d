-- One row for each queue.
SELECT
  wiring.queue,
  coalesce(held.depth, 0) AS depth,
  coalesce(held.bytes, 0) AS bytes,
  coalesce(held.acquired, 0) AS acquired,
  coalesce(held.acquired_by, map()) AS acquired_by,
  coalesce(held.delayed, 0) AS delayed,
  held.oldest_at,
  timestampdiff(SECOND, held.oldest_at, {now}) AS oldest_age_s,
  wiring.detail
FROM wiring AS wiring
LEFT JOIN (
  SELECT
    queue,
    sum(depth) AS depth,
    sum(bytes) AS bytes,
    coalesce(sum(depth) FILTER (WHERE acquired_by IS NOT NULL), 0) AS acquired,
    map_from_entries(
      array_sort(array_agg(struct(acquired_by, depth)) FILTER (WHERE acquired_by IS NOT NULL))
    ) AS acquired_by,
    coalesce(sum(delayed) FILTER (WHERE acquired_by IS NULL), 0) AS delayed,
    min(oldest_at) AS oldest_at
  FROM (
    SELECT
      queue, acquired_by, count(*) AS depth, sum(message_bytes) AS bytes, min(at) AS oldest_at,
      count_if(
        timestamp_millis(
          try_cast(get_json_object(detail, '$.x-opt-delivery-time[1]') AS BIGINT)
        ) > {now}
      ) AS delayed
    FROM entries
    GROUP BY queue, acquired_by
  )
  GROUP BY queue
) AS held ON held.queue = wiring.queue
WHERE wiring.queue IS NOT NULL AND wiring.exchange IS NULL
