-- What becomes of each staged message: `drop` if it was enqueued or aborted since, else `put`.
SELECT message_id, position, IF(ended > position, 'drop', 'put') AS change
FROM (
  SELECT message_id, max(position) AS position, max(ended) AS ended
  FROM (
    SELECT message_id, position, CAST(NULL AS BIGINT) AS ended FROM staged_content
    UNION ALL
    SELECT /*+ BROADCAST(staged_content) */ tail.message_id, CAST(NULL AS BIGINT), tail.position
    FROM tail
    LEFT SEMI JOIN staged_content ON staged_content.message_id = tail.message_id
    WHERE tail.kind IN ('enqueued', 'staging_aborted')
  )
  GROUP BY message_id
)
