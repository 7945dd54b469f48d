"""A Spark that answers the next questions of `sparkstore sql`, and ends when there are none.

A JVM and its first query take over ten seconds, the second query one. So the first `sparkstore sql`
leaves a process behind that the next one asks. It is of this user alone, has a Unix socket and no
port, and ends after 15 minutes without a question.

    place       where the server of a kind of question is: socket, lock and log
    exchange    a question and its answer as they go over the socket
    client      starts a server where none is, and asks it
    server      has the Spark session, and answers

A question goes through the same gate and the same printing as without a server
(`sparkstore.cli.sql`), so its answer has the same bytes. The client loads no PySpark.

Beside it, `limited_process` answers one question by DuckDB for the broker's HTTP port.
"""
