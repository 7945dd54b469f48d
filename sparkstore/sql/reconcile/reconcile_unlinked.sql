-- Deliveries that are remembered for a link that does not exist, by link.
SELECT delivery.exchange AS link, count(*) AS delivery_count, min(delivery.binding_key) AS tag
FROM {others} AS delivery
LEFT ANTI JOIN {others} AS link ON link.part = 'link' AND link.exchange = delivery.exchange
WHERE delivery.part = 'delivery'
GROUP BY delivery.exchange
ORDER BY link
