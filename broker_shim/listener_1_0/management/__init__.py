"""The node `$management`: queues, exchanges and bindings by messages (AMQP Management, draft 9).

    request ─► management_link ─► management_node ─► sockets.client_orders ─► broker.administration
    answer  ◄─ reply-to's queue ◄─┘    entities: what there is, as clients are told

A client sends requests to `$management`, and gets each answer at the `reply-to` of its request:
most have a queue made for that by a receiver with a dynamic source. Orders need the same rights as
over AMQP 0-10, and are decided where all orders are. A request is carried out once it has come
whole; it is on no queue, and in no history.
"""
