"""The command `sql`: a root, or a broker, and a statement come in, rows go out.

`duckdb_sql` and `spark_sql` ask an engine each, and both give a `query_result`. `limited_process`
answers one query by DuckDB in a process of its own, for the broker's HTTP port.
"""
