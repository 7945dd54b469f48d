"""The queues as Spark SQL sees them: views over the table `state` and every record after it.

    views                    which views there are, and how they are registered or published
    view_relations           a view that a query names → local rows, or a plan over Delta
    spark_tables             names of tables for SQL, the steps in `sparkstore/sql`, Spark's errors
    join_hints               which side of a join is small: told to Spark, which cannot know
    typed_queries            what a query that somebody typed may ask
    value_functions          functions of messages' values for SQL, and `body_as` for frames
    schema_calls             `body_as` and `queue_schema` in typed SQL, as Spark computes them
    message_choice           a predicate over a view → ids of messages, in the order of the queue

A Spark session and a root come in, DataFrames go out. Nothing here commits to a table.

The jobs fold with the same steps, reconcile compares by them, and the command `sparkstore sql`
answers with them.
"""

from sparkstore.views.value_functions import body_as
from sparkstore.views.views import publish, register, sql

__all__ = ["body_as", "publish", "register", "sql"]
