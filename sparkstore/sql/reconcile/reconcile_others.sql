-- Every member, staged message, link and remembered delivery of one side, as the views fold them.
-- `told` is what each says: of a member, which of its requests were refused, beside its `detail`; of
-- the others it is their detail, which is not given twice: from a column that stands twice in a part
-- of a union Spark 4.2 makes a plan that it then refuses.
SELECT
  'member' AS part, member, CAST(NULL AS BIGINT) AS message_id, CAST(NULL AS STRING) AS exchange,
  CAST(NULL AS STRING) AS binding_key, CAST(NULL AS BIGINT) AS position,
  CAST(NULL AS TIMESTAMP) AS at, request, detail, {refused} AS told
FROM member_state
UNION ALL
SELECT
  'staged', NULL, message_id, NULL, NULL, position, NULL, NULL, NULL, NULL
FROM staged
WHERE change = 'put'
UNION ALL
SELECT 'link', NULL, NULL, link, NULL, position, at, NULL, NULL, detail FROM link_state
UNION ALL
SELECT 'delivery', NULL, NULL, link, tag, NULL, NULL, NULL, NULL, detail FROM link_deliveries
