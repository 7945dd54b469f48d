-- Entries of `state` on queues that the tail destroyed, and that no record of the tail names.
SELECT entry.queue, entry.message_id
FROM {state} AS entry
JOIN destroyed_queues ON destroyed_queues.queue = entry.queue
LEFT ANTI JOIN folded
  ON folded.queue = entry.queue AND folded.message_id = entry.message_id
WHERE entry.part = 'entry'
