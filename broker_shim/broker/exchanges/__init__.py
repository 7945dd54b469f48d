"""Exchanges that route by more than a routing key, and alternate exchanges.

`headers_exchange` routes by application properties, pure. `alternate_routing` brings what is on a
queue that is deleted to where its alternate exchange routes it. `broker_shim.broker.routing` has
all exchanges, and follows their alternates.
"""
