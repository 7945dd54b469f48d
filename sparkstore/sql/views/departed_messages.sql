-- One row for each message that left a queue, is not on it now, and is in history still; not for
-- one that was moved or dead-lettered, as it lives on elsewhere, nor for one that a repaired one
-- replaced, or that an undo restored as a copy. `replayed_to` names the queues that a copy of it
-- was put on by `sparkstore replay`; `position` is where it left.
SELECT
  departed.* EXCEPT (
    position, acquired_by, ended_position, ended_at, ended_by, outcome, end_detail
  ),
  departed.ended_position AS position,
  departed.ended_at AS dequeued_at,
  departed.ended_by AS holder,
  departed.end_detail AS outcome,
  coalesce(copies.replayed_to, array()) AS replayed_to
FROM ({messages}) AS departed
LEFT JOIN (
  SELECT
    coalesce(restored, replayed) AS message_id,
    collect_set(queue) FILTER (WHERE restored IS NULL) AS replayed_to,
    bool_or(restored IS NOT NULL) AS is_restored
  FROM (
    SELECT
      queue,
      CAST(properties['sparkstore.replayed'] AS BIGINT) AS replayed,
      try_cast(get_json_object(detail, '$.x-opt-restored-from[1]') AS BIGINT) AS restored
    FROM {events}
    WHERE kind = 'enqueued'
      AND (properties['sparkstore.replayed'] IS NOT NULL OR detail LIKE '%x-opt-restored-from%')
  )
  GROUP BY coalesce(restored, replayed)
) AS copies
  ON copies.message_id = departed.message_id
WHERE departed.outcome NOT IN ('queue destroyed', 'moved', 'dead-lettered', 'resubmitted')
  AND NOT coalesce(copies.is_restored, false)
