"""Changes of queues from outside the broker: through the broker that runs, or under its lock.

`client` finds out which: it asks a running broker over HTTP, at the control socket of its root, or
has `offline` write the records that `sparkstore.operations` decided, under the lock of the root.
`http_client` asks a broker there or at its HTTP port, and `broker_control` gives it orders.
`message_choice` chooses messages, `bulk_run` carries out an operation on many of them in turns,
`undo_run` takes one back, and `audit` writes down who did what. Commands, jobs and the HTTP port
call it; it starts no JVM.

Orders come in as values, and answers go out when what was ordered is durable. A broker that serves
its control socket lives elsewhere (`broker_shim.serve`), and so does every decision. No table is
changed here but by records that a log writes.
"""
