"""Sockets of any protocol: who may connect, and whose turn it is.

    listener, transport      sockets ─► what a protocol makes of each (`ServedConnection`)
    served_connection        what a protocol's connection has to do for its socket
    shared_port              one port for several protocols, told apart by the first bytes
    turns                    how much of what one peer sent is acted on before all others' turns
    login, access            how one peer gets in, and who it is
    authorization, owners    what it may do there, and what is its own

The composition root (`broker_shim.serve`) has one `Listener`, which listens for each protocol; the
rooms of the protocols (as `broker_shim.listener_1_0`) make the connections. It knows no frame of
any protocol.

Decision: asyncio's transports and protocols, not its streams: a protocol is called with bytes, a
stream costs a task and a future for each read. What a turn of the loop led to is done at its end.
"""
