-- Name and definition of each queue.
SELECT queue, detail FROM wiring WHERE queue IS NOT NULL AND exchange IS NULL
