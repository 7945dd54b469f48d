"""The log, the tables and the jobs of a store: they know Spark, Delta and Arrow, and no AMQP.

Records come in through `log`, which makes them durable and commits them to Delta. `recovery` and
`content` read them back without a JVM. `compaction`, `replication` and `reconcile` are jobs of
Spark, and `views` show the queues to whoever asks with SQL. `core` and `operations` decide what
records mean and what may be asked of a queue, without any engine.
A broker calls `log`, `recovery`, `content` and `control`; an operator calls the command
(`sparkstore.cli`). Two more modules are for everybody: `config` and `settings_file` read settings,
`session` starts Spark, `errors` says what can go wrong. Nothing here imports `broker_shim`.
"""

__version__ = "0.6.0.dev0"
