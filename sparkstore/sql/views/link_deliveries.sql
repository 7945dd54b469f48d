-- Every delivery that a link remembers, now.
SELECT delivery.exchange AS link, delivery.binding_key AS tag, delivery.detail
FROM {state} AS delivery
LEFT ANTI JOIN delivered
  ON delivered.exchange = delivery.exchange AND delivered.binding_key = delivery.binding_key
LEFT ANTI JOIN touched_links ON touched_links.exchange = delivery.exchange AND touched_links.closed IS NOT NULL
WHERE delivery.part = 'delivery' AND (SELECT whole FROM guard)
UNION ALL
SELECT exchange AS link, binding_key AS tag, detail
FROM delivered
WHERE change = 'put'
