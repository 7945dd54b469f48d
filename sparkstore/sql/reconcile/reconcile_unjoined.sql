-- Bindings whose queue or exchange does not exist.
SELECT binding.exchange, binding.queue, binding.binding_key
FROM {wiring} AS binding
LEFT JOIN {wiring} AS queue ON queue.queue = binding.queue AND queue.exchange IS NULL
LEFT JOIN {wiring} AS exchange
  ON exchange.exchange = binding.exchange
  AND exchange.queue IS NULL AND exchange.binding_key IS NULL
WHERE binding.exchange IS NOT NULL AND binding.queue IS NOT NULL
  AND (queue.queue IS NULL OR exchange.exchange IS NULL)
