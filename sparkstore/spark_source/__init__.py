"""Reads and streams of `format("sparkstore")`, in Python processes of Spark.

Options and a schema come in; record batches of Arrow go out. `pyspark_sparkstore` calls it. The
options of both roads are declared in `options`. A read of a view (`batch_reader`) asks the embedded
engine, since a process of Spark's has no session.

A stream of events (`event_reader`) reads the records themselves: `record_log` finds the end of
them, `stream_position` where a stream goes on, `range_plan` cuts a batch into tasks, and each task
reads its positions by `record_range`. It needs neither DuckDB nor a running store.
"""
