-- The content of messages, once for each queue that they may be on: the queue that they came on, and
-- those that only named them. So a predicate on the queue holds of content, too, and Delta opens only
-- the files of history that can have such rows. What came on another queue (it was moved, or is on
-- several) is found by its id alone, and so is what a state does not tell of (`segment` is NULL);
-- where a queue has no such message, Spark reads nothing for it.
-- Nothing here names a step that is computed once: no predicate gets below a WITH that has one.
-- If entries are too many to be sent to every task, content has a guard of its own: Spark leaves
-- out the entries, and their guard, when it sees that no content is there to be joined with them.
SELECT
  queue, message_id, {contentcolumns}, header, body
FROM {events}
WHERE kind = 'enqueued' AND protocol IS NOT NULL AND {contentsguard}
{contents_elsewhere}
