-- Every queue, exchange, binding and configured object, now.
SELECT queue, exchange, binding_key, position, detail
FROM {state} AS wiring
LEFT ANTI JOIN wired AS wired
  ON wired.queue <=> wiring.queue
  AND wired.exchange <=> wiring.exchange
  AND wired.binding_key <=> wiring.binding_key
WHERE part = 'wiring' AND (SELECT whole FROM guard)
UNION ALL
SELECT queue, exchange, binding_key, position, detail
FROM wired
WHERE change = 'put'
