"""A second root that has the records of a first one: registered, copied to, promoted.

`replicas` makes two roots known to each other, `replicate` copies the primary's records to the
replica's history and state (`replicate_source` reads them, `replicate_plan` decides, pure), and
`promote` makes a replica the primary and fences the old one. That needs no Spark, as it must work
when little else does. `record_at` compares two roots at one position. `primary` is the root that is
copied, in a folder or in a bucket; `old_primary` is what a promotion does about it.

In a bucket `bucket_replica` pairs, `bucket_copy` copies, and `bucket_promote` promotes. `backup`
writes the same copy to any storage, and makes a new root of it.

Two roots come in; what goes out is a replica that has the primary's records up to a position, or a
primary in another place. The command line calls it, reconcile compares by it. It never changes the
primary's tables, and locks nothing of it: only a promotion writes into the old root, its role.
"""
