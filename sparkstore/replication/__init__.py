"""A second root that has the records of a first one: registered, copied to, promoted.

`replicas` makes two roots known to each other, `replicate` copies the primary's records to the
replica's history and state (`replicate_source` reads them, `replicate_plan` decides, pure), and
`promote` makes a replica the primary and fences the old one; that needs no Spark, as it must work
when little else does. `record_at` compares two roots at one position.
"""
