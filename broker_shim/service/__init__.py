"""One root's store, served to other processes of this machine.

From the wire down: `protocol` (bytes ↔ frames), `arrivals` (frames ↔ checked records), `decisions`
(records → steps of the state machine, refusals), `members` (who asked, what of it is decided),
`outbox` (answers), `connection` (one thread a connection), `service` (the listener).

Decision: a thread for each connection, not one loop for all. A member has one connection, there
are few, and a thread that waits in `recv` finds all that came meanwhile: under load it decides
hundreds of requests under one holding of the store's lock, and hands them to the log as one item.
An event loop would pay its turn for each of them.
"""
