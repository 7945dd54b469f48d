"""A root in a bucket: what a store does that serves it from here, and what a job does.

    bucket_start     what a start does before and beside what it does on a disk; a new root
    epochs           whose turn it is to write: one object for each epoch, put if absent
    working_copy     a folder of this machine that is brought to what the bucket holds
    table_publisher  commits of a table of a copy, published in the bucket one by one
    publisher        the same of a store's journal, under its epoch; files that nothing names go
    follower         what jobs committed comes into the copy of the store that serves
    job_copy, job_lease    a job: its own copy, its commits published; one at a time
    bucket_download  a copy for whoever only reads, whole or as much as a question needs
    cluster_tables   a job on a Spark cluster: data files in the bucket, a log private to the run

`log` calls it: it opens the working copy as it opens a root, and fires completions after the
publisher. Everything here is asked of a `Storage`; nothing knows brokers or Spark.
"""
