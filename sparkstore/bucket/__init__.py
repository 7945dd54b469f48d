"""A root in a bucket that is served from here.

    bucket_start    what a start does before and beside what it does on a disk
    epochs         whose turn it is to write: one object for each epoch, put if absent
    creation       a new root under a prefix that is free
    working_copy   a folder of this machine that is brought to what the bucket holds
    publisher      the commits of the journal in that folder, published in the bucket one by one

`log` calls it: it opens the working copy as it opens a root, and fires completions after the
publisher. Everything here is asked of a `Storage`; nothing knows brokers or Spark.
"""
