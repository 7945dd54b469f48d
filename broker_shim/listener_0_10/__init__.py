"""AMQP 0-10 onto the broker: connections, sessions, commands of clients.

    host                     what all connections share: sessions by name, queues of sessions
    connection, login        controls of a connection; SASL by the rules of `broker_shim.security`
    sessions/                controls of a session; which commands are complete, and come again
    commands                 each command → what does it
    session_publisher, sending/  messages in and out
    wiring/                  queues and exchanges
    transaction, dtx/        tx.select to tx.commit: all of it or nothing; distributed transactions
    authorization, refusals  who may do what; the store's errors in the protocol's words
    message_headers          a stored message ↔ header and body of this protocol

Frames come through `broker_shim.handlers`. A command is complete when the store's completion has
fired: then, and not before, session.completed names it. Everything here is on the loop's thread.

Decision: what the store refuses after a client went on is an exception that ends the session. The
protocol has no other answer to a command, and a client that publishes without waiting learns of it
at its next sync.
"""
