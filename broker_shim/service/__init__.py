"""One root's store, served to other processes of this machine.

From the wire down: `store.protocol` (bytes ↔ frames), which a client of the service shares. Then
`decisions` (records → steps of the state machine, or a refusal: pure, under the store's lock),
`requests` and `members` (who asked, and what of it is decided), `outbox` (answers), `member_reads`
and `recovery_rows` (what a member looks at). At last `member_connection` (one thread a connection),
`service` (the listener), `socket` and `service_options` (where it listens).

Decision: a thread for each connection, not one loop for all. A member has one connection, there are
few, and a thread that waits in `recv` finds all that came meanwhile. Under load it decides hundreds
of requests under one holding of the store's lock, and hands them to the log as one item. An event
loop would pay its turn for each of them.
"""
