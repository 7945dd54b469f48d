"""AMQP 1.0 onto the broker: connections, links and deliveries of clients.

    host                     what all connections share; the broker's links and containers
    connections/             what a socket carries ─► attach/ ─► receiving/ or sending/; what lives
                             on when a link ends (`broker_shim.links` decides), and what does not
    management/, authorization             orders as messages; who may do what
    transactions/            local transactions
    messages/                an encoded message: looked into, never decoded
    conditions, outcomes, termini            the broker's words ↔ the protocol's

Decision: AMQP 1.0 is spoken by `protocol_1_0`, without I/O. A message's bytes go out as they came
in.
"""
