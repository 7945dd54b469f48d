"""Local transactions (AMQP 1.0 part 4 has them so), as far as they need no protocol. Pure.

    standing     whether a transaction may still take work, and be committed
    refusals     what a client is told when it may not

No store, no broker, no clock: `listener_1_0.transactions` does what is decided here.
"""
