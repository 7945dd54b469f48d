"""The queues as two plain Delta tables, for readers without Spark: deltalake, DuckDB, Polars.

    <root>/current/queues            one row for each queue, and how old the answer is
    <root>/current/queue_messages    one row for each message on each queue, without its content

A root comes in; the fold of all that Delta has of it goes out, as tables that need no fold.
`columns` says what their rows are, `publication` commits them, without a JVM. The commands
`sparkstore current` and `sparkstore compact --current` call it. Nothing reads these tables back but
the next publication, to find out what changed: they can be deleted at any time.
"""
