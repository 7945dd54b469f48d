-- `destroyed_queues` where the tail is known to destroy no queue: it need not be read for that.
SELECT CAST(NULL AS STRING) AS queue, CAST(NULL AS BIGINT) AS destroyed WHERE false
