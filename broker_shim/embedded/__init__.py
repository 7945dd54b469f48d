"""The embedded broker: `sparkstore serve`, AMQP 1.0 on loopback over any `MessageStore`.

    listener    sockets, one thread, one loop            ─► connection ─► incoming, outgoing (links)
    broker      addresses → queues → store calls         ◄── inbox ◄── completions (store's thread)
    routing, queue, credit, address, amqp_*              pure: decide, never do
    queue ─► backlog ─► lane, looking, groups            who gets which message next; what waits
    scanning, replacing                                  selectors over what waits; last values

Decision: our own loop over proton's `Transport`, not proton's `Container`. The container builds six
Python wrappers for each event, logs each event, rescans every socket for deadlines, and waits in
`select`, which ends at 1,024 descriptors. The loop here reads 64 KiB at once, lets proton's C code
decode, and looks at the raw event: 2 to 3 times as many messages a second for 200 lines.

Decision: the protocol's bytes are scanned by `amqp_message`, never by `proton.Message`, whose
binary values point into memory that is freed with it; and a message goes out with the very bytes
it came in with.
"""

from sparkstore.log.tuning import tune_allocator

tune_allocator()  # here, as it must come before the first import of pyarrow, anywhere below
