"""A root and the Delta tables in it, without Spark: what a root on a disk must be to be trusted.

    root, schema, rows                        where the tables are, their columns, records ↔ rows
    snapshot, delta_files, parquet_check      what a version of a table names; is it whole?
    marks, file_rewrite                       fsync, and what of each table is known to be on disk
    healing                                   what a power cut broke is set aside at a start
    lock, lease, fencing                      who may write: one writer, one job, one primary
    delta_log_cleaning, private_folder, arrow_values

Delta's engines never fsync and never agree on who commits; so whatever this project promises about
disks is kept here. The log, recovery and the jobs call it; it calls `storage` and `core`.
"""
