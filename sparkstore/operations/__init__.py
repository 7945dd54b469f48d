"""Decide an administrator's requests about whole queues: requests in, refusals or records out.

Pure.

    administration, queue_alteration     queues, exchanges and bindings: create, alter, delete
    bulk                                 move, copy, purge, expire many messages
    redrive                              where dead letters go back to
    placement, placement_wire            a message off a queue, another in its place; as JSON
    placements_at_rest                   the same for a root that nobody serves
    operation_history, undo              what became of a bulk command; what takes it back
    definitions                          documents of queues, exchanges and bindings
    root_at_rest                         the same for a root that nobody serves, as steps
    wire                                 new messages ↔ objects of JSON

A running broker asks these modules before it calls its store. `control.offline` asks them, and the
state machine that a store has, before it writes records under the lock of a root that is at rest.
So both answer alike. Nothing here reads a table, waits, or knows what time it is: the caller says.
"""
