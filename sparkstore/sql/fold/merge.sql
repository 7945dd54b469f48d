MERGE INTO {state} AS t
USING {changes} AS s
ON {target}
  AND t.part = s.part
  AND t.queue <=> s.queue
  AND t.message_id <=> s.match_id
  AND t.exchange <=> s.exchange
  AND t.binding_key <=> s.binding_key
  AND t.member <=> s.member
WHEN MATCHED AND s.change = 'drop' THEN DELETE
WHEN MATCHED AND s.change = 'hold' THEN UPDATE SET
  acquired_by = s.acquired_by,
  at = coalesce(s.at, t.at),
  delivery_count = coalesce(s.delivery_count, t.delivery_count),
  detail = coalesce(s.detail, t.detail)
WHEN MATCHED THEN UPDATE SET {set}
WHEN NOT MATCHED AND s.change = 'put' THEN INSERT ({columns}) VALUES ({values})
