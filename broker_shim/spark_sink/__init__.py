"""The sink of `format("sparkstore")`: rows of Spark become messages on queues of a running store.

Spark makes a writer (`writers`) from a schema and from options (`sink_settings`). Its tasks turn
rows into AMQP 1.0 messages (`message_columns`, `json_text`), find their queues (`routes`), and
stage them at the store service (`staged_rows`, `task_store`), each by a member's name of its own
(`member_names`). The driver then publishes what all tasks have staged.

It stands beside the broker, as a member of the store service: it opens no root and writes no file
of one. The package that PySpark looks for, `pyspark_sparkstore`, calls it.
"""

from broker_shim.spark_sink.writers import QueueStreamWriter, QueueWriter

__all__ = ["QueueStreamWriter", "QueueWriter"]
