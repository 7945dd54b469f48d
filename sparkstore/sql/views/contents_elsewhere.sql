-- The rest of `contents`: what came on another queue than those that it is on, or was on (see there).
UNION ALL
SELECT {entryhint}
  entry.queue, entry.message_id, {contentcolumns}, message.header, message.body
FROM (
  SELECT queue, message_id FROM {state} WHERE part = 'entry' AND NOT segment <=> 1
  UNION
  SELECT queue, message_id FROM {events}
  WHERE position > {least} AND kind = 'enqueued' AND protocol IS NULL
) AS entry
JOIN {events} AS message
  ON message.message_id = entry.message_id
WHERE message.kind = 'enqueued' AND message.protocol IS NOT NULL AND message.queue <> entry.queue
