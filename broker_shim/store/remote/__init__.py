"""A `MessageStore` in another process: calls become requests of the store protocol, and back.

`store` is what a broker plugs in; `greeting` lets it in, `connection` reads, and connects again
after a break with the requests that have no answer yet (`requests`), each once by its number.
`records` is what goes there and comes back about queues and entries, `messages` about content. Any
thread may call; completions fire on one thread, in order.
"""

from broker_shim.store.remote.store import RemoteMessageStore

__all__ = ["RemoteMessageStore"]
