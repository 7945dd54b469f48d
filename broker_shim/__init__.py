"""What a broker talks to: knows AMQP, knows no Spark."""
