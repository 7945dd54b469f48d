-- `ended_deliveries` where `state` is known to have no delivery.
SELECT CAST(NULL AS STRING) AS exchange, CAST(NULL AS STRING) AS binding_key WHERE false
