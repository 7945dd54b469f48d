"""The decision which consumer gets which message of a queue next.

Pure: ids, never bodies; no store, no clock, no thread.

`queue` dispatches: messages come in when they are durable, consumers say how many they take, and
pairs of both go out. `queue_index` keeps what waits, by `priority_level`. `selective_cursor` is a
consumer's own place if it does not take whatever comes next. `message_groups` and `last_values`
keep the promises of those two kinds of queues. `round_robin` deals to all others, in turn.
`consumer_credit` counts messages and bytes for a consumer whose credit has both.
`taken_out` has the runs that an order takes off the queue.

The virtual host asks them on the loop's thread, and carries out what they answer: they acquire
nothing and send nothing. Listeners name a consumer by the `Consumer` of `queue`; recovery fills a
queue at the start with what a store still had (`recovered_order`).
"""
