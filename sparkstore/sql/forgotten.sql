-- Deliveries of `state` on links that the tail closed, and that no record of the tail names.
SELECT delivery.exchange, delivery.binding_key
FROM {state} AS delivery
JOIN linked ON linked.exchange = delivery.exchange AND linked.closed IS NOT NULL
LEFT ANTI JOIN delivered
  ON delivered.exchange = delivery.exchange AND delivered.binding_key = delivery.binding_key
WHERE delivery.part = 'delivery'
