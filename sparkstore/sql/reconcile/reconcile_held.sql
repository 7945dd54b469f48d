-- Entries that somebody holds. Not those of a link that may come back for them (durability 2): they
-- are its unsettled deliveries.
SELECT queue, message_id, acquired_by AS holder
FROM {entries} AS entry
LEFT ANTI JOIN {others} AS link
  ON link.part = 'link'
  AND link.exchange = entry.acquired_by
  AND CAST(get_json_object(link.told, '$.durability') AS INT) = 2
WHERE entry.acquired_by IS NOT NULL
