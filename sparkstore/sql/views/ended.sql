-- Messages that may not stay where they are: expired, or with more failed deliveries than their
-- queue allows, in the order in which they expired. Acquired ones are their consumer's. This only
-- proposes them: whether each may stay is decided by `core.queue_arguments` (`reason_to_end`).
SELECT entry.queue, entry.message_id
FROM entries AS entry
JOIN wiring ON wiring.queue = entry.queue AND wiring.exchange IS NULL
WHERE entry.acquired_by IS NULL
  AND (
    entry.expires_at <= current_timestamp()
    OR entry.delivery_count
      > try_cast(
        coalesce(
          get_json_object(wiring.detail, '$.arguments.max_delivery_count'),
          get_json_object(wiring.detail, '$.arguments.policy.max_delivery_count.value')
        ) AS BIGINT
      )
  )
ORDER BY entry.queue, entry.expires_at NULLS LAST, entry.position
