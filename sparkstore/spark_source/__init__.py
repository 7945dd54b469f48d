"""Reads of `format("sparkstore")`: the views of a root, in Python processes of Spark.

Options and a schema come in; record batches of Arrow go out. `pyspark_sparkstore` calls it. The
options of every road are declared in `options`. A read of a view (`batch_reader`) asks the embedded
engine, since a process of Spark's has no session.
"""
