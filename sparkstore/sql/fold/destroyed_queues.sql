-- Queues that were destroyed in tail, and where: what was on them before is gone.
SELECT queue, unmade AS destroyed
FROM changes
WHERE unmade IS NOT NULL AND queue IS NOT NULL AND exchange IS NULL
