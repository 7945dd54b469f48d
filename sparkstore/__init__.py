"""The log, the tables and the jobs: knows Spark, Delta and Arrow, knows no AMQP."""

__version__ = "0.1.0"
