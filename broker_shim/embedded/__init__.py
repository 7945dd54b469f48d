"""The embedded broker: `sparkstore serve`, AMQP 1.0 on loopback over any `MessageStore`.

    listener, peer     sockets on the one loop       ─► connection ─► incoming, outgoing (links)
    loop, inbox        turns; calls of other threads ◄── completions (store's thread)
    access, attach*    who may connect; how a link is granted or refused
    links, served      what lives on when a link ends (`broker_shim.links` decides), what does not
    subscri*, own_queue, looking_up      whose queue serves a link on a topic
    resuming, answering                  unsettled deliveries of a link that comes back, both ways
    broker             addresses → queues → store calls
    routing, queue, credit, address, amqp_*              pure: decide, never do
    queue ─► backlog ─► lane, looking, groups            who gets which message next; what waits
    scanning, replacing                                  selectors over what waits; last values

Decision: asyncio's transports and protocols, not its streams: a protocol is called with bytes, a
stream costs a task and a future for each read. What a turn of the loop led to is done at its end.

Decision: AMQP 1.0 is spoken by `protocol_1_0`, without I/O. A message's bytes are scanned by
`amqp_message`, never decoded; it goes out with the very bytes it came in with.
"""

from sparkstore.log.tuning import tune_allocator

tune_allocator()  # here, as it must come before the first import of pyarrow, anywhere below
