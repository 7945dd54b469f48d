-- Every member and every staged message of one side, as the views fold them; `refused` names the
-- requests of a member that were.
SELECT
  'member' AS part, member, CAST(NULL AS BIGINT) AS message_id, CAST(NULL AS BIGINT) AS position,
  request, detail, {refused} AS refused
FROM membered
UNION ALL
SELECT
  'staged' AS part, CAST(NULL AS STRING), message_id, position,
  CAST(NULL AS BIGINT), CAST(NULL AS STRING), CAST(NULL AS STRING)
FROM staged
WHERE change = 'put'
