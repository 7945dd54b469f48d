"""Group commit: records → write-ahead log → completions, and in time → Delta commits.

    writer, wal, wal_format          records → groups in the write-ahead log → completions
    batcher, committer, journal      groups → commits of the journal; trims by `trim`
    start, wal_replay                what is done before the first record is taken
    logged_content, recent_content   content of what was just written, for readers

A store gives records from any thread; completions come on the thread `log` when the group is on
disk (ARCHITECTURE: Rule 1). It knows no queue and no message: to it a record is a row.

Decision: deltalake (delta-rs) is the engine of the journal, though it was not on the first list of
packages. A broker must start and commit without a JVM, and a Spark commit costs 250–450 ms where
delta-rs needs 9 ms. Writing the Delta protocol by hand would be faster still, and would make us
keep a third implementation of it for ever. Spark never commits to the journal
(ARCHITECTURE: Rule 2).
"""
