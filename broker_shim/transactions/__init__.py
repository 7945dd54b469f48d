"""Local transactions (AMQP 1.0 part 4 has them so), as far as they need no protocol. Pure.

    standing     whether a transaction may still take work, and be committed
    transaction_refusals  what a client is told when it may not

No store, no broker, no clock: `listener_1_0.transactions` does what is decided here.

    what comes in    the state of a transaction, what is asked of it, and the time
    what goes out    yes, or the reason why not, as a value

The links of a listener ask on the loop's thread. Nothing here ends a transaction by itself.
"""
