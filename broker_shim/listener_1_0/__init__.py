"""AMQP 1.0 onto the broker: connections, links and deliveries of clients.

    host                     what all connections share; the broker's links and containers
    listener, transport      sockets ─► connection ─► attach/ ─► receiving/ or sending/
    login, access, authorization, owners, containers     who may come in, and do what
    links, connection_links  what lives on when a link ends (`broker_shim.links` decides), what not
    resumption               what becomes of unsettled deliveries when a link is attached again
    transactions/            local transactions and their coordinator
    messages/                an encoded message: looked into, never decoded
    conditions, outcomes, termini            the broker's words ↔ the protocol's

Decision: asyncio's transports and protocols, not its streams: a protocol is called with bytes, a
stream costs a task and a future for each read. What a turn of the loop led to is done at its end.

Decision: AMQP 1.0 is spoken by `protocol_1_0`, without I/O. A message's bytes go out as they came
in.
"""
