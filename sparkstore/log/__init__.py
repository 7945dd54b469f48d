"""Group commit: records → write-ahead log → completions, and in time → Delta commits.

Decision: deltalake (delta-rs) is the engine of the journal, though it was not on the first list of
packages. A broker must start and commit without a JVM, and a Spark commit costs 250–450 ms where
delta-rs needs 9 ms. Writing the Delta protocol by hand would be faster still, and would make us
keep a third implementation of it for ever. Spark never commits to the journal
(ARCHITECTURE: Rule 2).
"""
