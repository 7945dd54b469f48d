"""A witness: a third place that says which of two roots may serve.

    holder    what its object says: who, for how long, in step with whom. Pure.
    place     the object itself, which is replaced if unchanged: in a bucket, `folder`, `kubernetes`
    lease     a store that serves renews its lease, and tells nothing without one
    claim     a start takes the lease, by its root and settings
    turn      a promotion or a standby takes the place; a person pauses that

`log` holds a lease while it serves, `standby` and `replication` take the place. Nothing knows
brokers or Spark.
"""
