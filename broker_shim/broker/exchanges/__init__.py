"""Exchanges that route by more than a routing key, and alternate exchanges.

`headers_exchange` routes by application properties, pure. `alternates` says where a message goes
that leaves its queue for an alternate exchange, and `alternate_routing` brings there what is on a
queue that is deleted. `broker_shim.broker.routing` has all exchanges, and follows their alternates.
"""
