"""What an administrator asks of a whole queue, decided: requests in, refusals or records out. Pure.

    administration, queue_alteration     queues, exchanges and bindings: create, alter, delete
    bulk                                 move, copy, purge, expire many messages
    administration_records, bulk_records the same over the fold of a root that nobody serves

A running broker asks these modules before it calls its store; `control.offline` asks them before it
writes records under the lock of a root that is at rest. So both answer alike. Nothing here reads a
table, waits, or knows what time it is: the caller says.
"""
