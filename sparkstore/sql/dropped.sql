-- Queues that were destroyed in tail, and where: what was on them before is gone.
SELECT queue, max(position) AS destroyed
FROM tail
WHERE kind = 'destroyed' AND queue IS NOT NULL
GROUP BY queue
