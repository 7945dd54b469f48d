-- One row for each broker instance that asks this root for things by numbered requests: up to its
-- last request all are decided; `refusals` counts those refused among its last {window}. What it has
-- acquired is held in its name: `member/` begins the holder. Since when it is there, a store service
-- keeps with the incarnations that it knows; older ones have no time.
SELECT
  member.member,
  member.request AS last_request,
  size(json_object_keys(member.detail)) AS refusals,
  count(held.message_id) AS acquired,
  coalesce(sum(held.message_bytes), 0) AS acquired_bytes,
  timestamp_micros(CAST(get_json_object(known.detail, '$.since_us') AS BIGINT)) AS since
FROM member_state AS member
LEFT JOIN (
  SELECT acquired_by, message_id, message_bytes FROM entries WHERE acquired_by IS NOT NULL
) AS held
  ON startswith(held.acquired_by, concat(member.member, '/'))
LEFT JOIN (
  SELECT binding_key, detail FROM wiring WHERE exchange = 'sparkstore.member' AND queue IS NULL
) AS known
  ON known.binding_key = member.member
GROUP BY member.member, member.request, member.detail, known.detail
