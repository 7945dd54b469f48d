"""A `BrokerStore` in another process: calls become requests of the store protocol, and back.

`remote_store` is what a broker plugs in, and `greeting` lets it in. `service_connection` reads, and
connects again after a break. It sends the requests again that have no answer yet
(`pending_requests`), each once by its number. `member_records` is what goes there and comes back
about queues and entries, `remote_messages` about content. Any thread may call; completions fire on
one thread, in order.

Other Python brokers make one with the address of a service. It decides nothing: what a call comes
to is the service's answer, also after a break. It writes no file, and it never answers for the
service while that is away: a call waits, or fails with `Unavailable` when its time is over.
"""

from broker_shim.store.remote.remote_store import RemoteMessageStore

__all__ = ["RemoteMessageStore"]
