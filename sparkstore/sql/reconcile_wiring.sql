-- Every queue, exchange and binding of one side, as the views fold it.
SELECT queue, exchange, binding_key, position, detail FROM wiring
