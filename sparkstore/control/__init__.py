"""Changes of queues from outside the broker: through the broker that runs, or under its lock.

`client` finds out which: it speaks to the control socket of a running broker (`wire` and
`administration_wire` say what travels, one JSON object a line), or has `offline` write the records
that `sparkstore.operations` decided, under the lock of the root. `bulk_run` carries out an
operation on many messages in turns, and `audit` writes down who did what. Commands and jobs call
it; it starts no JVM.
"""
