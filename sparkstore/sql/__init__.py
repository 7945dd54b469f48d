"""The SQL of the views, of the fold and of reconcile, and what makes queries of it. No engine.

`queries` knows which steps a view is made of, and fills in the files beside it. A name goes in, a
text comes out. `sparkstore.views` and the jobs give it to Spark, `sparkstore.embedded` to DuckDB.
"""
