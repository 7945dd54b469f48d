"""The frame in which every job runs, and what each run leaves behind.

`job` gives a job its priority, its session and its progress lines, turns its failure into an exit
code, and writes its `report` down: a row of `job_runs`, a file for a node exporter (`textfile`).
`failpoints` are the moments between commits at which tests stop a job. The jobs themselves are in
`compaction`, `replication` and `reconcile`; they are handed to the frame by the command line.

A job's function comes in and its report goes out. A job that finds the lease taken is no run and
leaves nothing behind. This package never touches the tables of a store, but for its own log of
runs, and it decides nothing about what a job does.
"""
