-- Every queue, exchange, binding and configured object, now.
SELECT queue, exchange, binding_key, position, detail
FROM {state} AS wiring
LEFT ANTI JOIN wiring_changes AS wiring_changes
  ON wiring_changes.queue <=> wiring.queue
  AND wiring_changes.exchange <=> wiring.exchange
  AND wiring_changes.binding_key <=> wiring.binding_key
WHERE part = 'wiring' AND (SELECT whole FROM guard)
UNION ALL
SELECT queue, exchange, binding_key, position, detail
FROM wiring_changes
WHERE change = 'put'
