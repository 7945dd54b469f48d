"""Messages between the store and the queues: published, settled, replaced, or put off.

    served_queues            the queues that all other parts serve, and who owns some
    publications             many new messages put on queues at once
    settlement               consumers' outcomes made durable
    dead_letters, last_value_queues, delivery_delays     what died, was replaced, or waits its time
    header_scan, selector_compiler                       selectors over what waits, in slices
    observation              what others did, who use the same store
    unfinished_messages      the memory of what has not come whole

It calls `storage`, `queues` and `wiring`; `delivery`, `orders` and `transactions` call it. All of
it runs on the loop's thread.
"""
