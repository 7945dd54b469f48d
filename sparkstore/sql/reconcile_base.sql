-- What `state` must have held just before the oldest position from which history is gapless: the
-- entries that are older than it. Wiring is kept: who made it may be older, too. In a history that
-- is whole this is nothing, and what is folded on top of it owes nothing to `state`.
SELECT * FROM {state}
WHERE {start} > 1 AND (part = 'wiring' OR (part = 'entry' AND position < {start}))
