"""The views of a root answered by DuckDB: in this process, in a second, without a JVM.

A root and one SELECT come in, an Arrow table goes out. `sparkstore.query` calls `query`, and the
command `sparkstore sql` calls `answers`. `duckdb_views` gives DuckDB the tables of
a root, as they are at one moment, and the views over them. `dialect` turns the text of the views,
which is Spark's (`sparkstore.sql`), into DuckDB's. `typed_select` says what a typed query may do.
`queue_series` asks for a queue's figures over time.

Nothing here changes a root, and no file is read by DuckDB itself: Arrow reads those that
deltalake's log names.
"""
