-- What `state` must have held just before the oldest position from which history is gapless: the
-- entries that are older than it. Wiring, members and links are kept: what made them may be older, too. In a history that
-- is whole this is nothing, and what is folded on top of it owes nothing to `state`.
SELECT * FROM {state}
WHERE {start} > 1 AND (part IN ('wiring', 'member', 'link', 'delivery') OR (part IN ('entry', 'staged') AND position < {start}))
