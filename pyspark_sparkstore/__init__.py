"""The data source `sparkstore`, where Spark looks for one: `format("sparkstore")`.

PySpark imports each top-level package whose name begins as this one's does, and registers
its `DefaultSource`. Options come in; a reader or a writer goes out. Spark calls it, in Python
processes of its own. Readers are in `sparkstore.spark_source`, writers in `broker_shim.spark_sink`:
writes go through the running store.
"""

from __future__ import annotations

from pyspark_sparkstore.source import DefaultSource

__all__ = ["DefaultSource"]
