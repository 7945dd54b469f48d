-- Deliveries of `state` that the tail ended: they were settled, or their link was closed.
SELECT delivery.exchange, delivery.binding_key
FROM {state} AS delivery
LEFT JOIN delivered
  ON delivered.exchange = delivery.exchange AND delivered.binding_key = delivery.binding_key
LEFT JOIN touched_links AS link
  ON link.exchange = delivery.exchange AND link.binding_key IS NULL
WHERE delivery.part = 'delivery'
  AND (
    delivered.change = 'drop' OR delivered.change IS NULL AND link.closed IS NOT NULL
  )
