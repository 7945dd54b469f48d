-- One row for each broker instance that asks this root for things by numbered requests: up to its
-- last request all are decided; `refusals` counts those refused among its last {window}.
SELECT
  member,
  request AS last_request,
  size(json_object_keys(detail)) AS refusals
FROM member_state
