-- Every queue, exchange, binding and configured object of one side, as the views fold it.
SELECT queue, exchange, binding_key, position, detail FROM wiring
