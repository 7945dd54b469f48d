-- One row for each binding.
SELECT exchange, queue, binding_key, detail, position
FROM wiring
WHERE exchange IS NOT NULL AND queue IS NOT NULL
