"""AMQP 0-10 onto the broker: connections, sessions, commands of clients.

    host, commands           the listener; each command → what does it
    wiring/, dtx/            queues and exchanges; distributed transactions
    sessions/                connections, sessions, and their messages in and out
    transaction, open_branches              tx.select to tx.commit: all of it or nothing; of dtx
    login, refusals          SASL by the rules of `broker_shim.security`; the store's errors
    messages/                a stored message ↔ header and body of this protocol

Frames come through `broker_shim.handlers`. A command is complete when the store's completion has
fired: then, and not before, session.completed names it. Everything here is on the loop's thread.

Decision: what the store refuses after a client went on is an exception that ends the session. The
protocol has no other answer to a command, and a client that publishes without waiting learns of it
at its next sync.
"""
