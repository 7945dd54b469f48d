"""Decide what a compaction does from a few numbers. Pure: no Spark, no clock.

    compact_plan     how far one fold goes, and what a MERGE reads of `state`
    history_plan     what is appended to history, and how large its files get

The steps of the job ask these modules with what they counted, and carry out what comes back.

Counts, positions and settings come in; positions, predicates and sizes go out. The replication job
asks them too, since a replica's history and state are made by the same steps, and the command line
reads their limits. They open no table, so each rule has a test that needs no JVM.
"""
