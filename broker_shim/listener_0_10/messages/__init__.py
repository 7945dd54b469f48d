"""Headers of messages, between AMQP 0-10 and the store.

In: a header segment of a client, or a stored header of any protocol. Out: the other one. Callers:
the publisher and the subscriptions.
"""
