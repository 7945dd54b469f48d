"""Serve messages to clients: a broker of AMQP 1.0 and 0-10, which knows no Spark.

Calls go down: sockets and `listener_1_0` take what clients say, `broker` decides about queues,
`store` keeps what was decided through `sparkstore`, in this process or through a `service`.
`serve` joins all of that to the command `sparkstore serve`. The modules that lie here are what all
of them share: `completion` (a call that is done when it is durable), `durability` (what survives
which end) and `errors`; `generate` writes the packages of generated types.
Nothing here starts a JVM, and nothing here commits to a table: that is left to `sparkstore.log` and
to the jobs. `sparkstore` never imports this package (ARCHITECTURE: Layers).
"""
