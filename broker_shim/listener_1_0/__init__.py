"""AMQP 1.0 onto the broker: connections, links and deliveries of clients.

    host                     what all connections share; the broker's links and containers
    connection               what a socket carries (`broker_shim.sockets`) ─► attach/ ─► receiving/
                             or sending/
    authorization, containers              who may do what
    links, connection_links  what lives on when a link ends (`broker_shim.links` decides), what not
    resumption               what becomes of unsettled deliveries when a link is attached again
    transactions/            local transactions and their coordinator
    messages/                an encoded message: looked into, never decoded
    conditions, outcomes, termini            the broker's words ↔ the protocol's

Decision: AMQP 1.0 is spoken by `protocol_1_0`, without I/O. A message's bytes go out as they came
in.
"""
