-- One row for each object of a broker's configuration that it keeps here.
SELECT exchange AS category, binding_key AS key, detail, position
FROM wiring
WHERE exchange IS NOT NULL AND binding_key IS NOT NULL AND queue IS NULL
