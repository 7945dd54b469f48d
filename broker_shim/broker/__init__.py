"""The virtual host: queues, and which message goes to whom. It knows no protocol's frames or links.

    virtual_host             all queues of one broker; builds and joins the modules beside
    address, destinations, routing          what a name means, and which queues a message goes to
    operations/              what protocols ask beside sending and receiving: query, acquire
    exchanges/               headers exchanges, alternate exchanges
    queues/                  who gets which message next: pure
    storage/                 the store as the loop sees it
    settlement, dead_letters, last_value_queues, queue_deletion, bulk_operations, administration
    served_queues            the queues that all of its parts serve, and who owns some
    header_scan, selector_compiler          selectors over what waits, in slices

Links of a protocol call in, on the loop's thread; what they asked for is answered by a callback
when the store has it. A message may be dispatched when its enqueue has completed, and a queue is
used when its creation has. So nothing a client was shown is undone by a crash.
"""
