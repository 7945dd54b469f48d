-- The largest message id in use, and the least that was never reserved.
SELECT
  greatest(
    coalesce((SELECT max(message_id) FROM {records} WHERE kind <> 'ids_reserved'), 0),
    coalesce((SELECT max(message_id) FROM {entries}), 0)
  ) AS used,
  coalesce(
    (SELECT max_by(message_id, position) FROM {records} WHERE kind = 'ids_reserved'),
    (SELECT max(message_id) FROM {state} WHERE part = 'meta'),
    1
  ) AS next
