"""Report on a broker to people who look: each report has a file, and none changes anything.

overview    how the broker is, and what is wrong, in the words of the doctor
series      a queue's figures over time: what is asked of the ring, and what of history
search      messages of a queue by subject or property
subscriptions  queues that belong to links, with who has them
streams     queries and sinks of Spark, and what of streams nobody can know
consumers   who takes from a queue, and how much
probes      is it there, does it serve, and its metrics
users       who may do what
"""
