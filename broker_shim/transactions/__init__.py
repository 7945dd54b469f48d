"""Local transactions of AMQP 1.0 (part 4 of the specification), as far as they are pure.

    commands     what a client asks of the coordinator: declare, discharge
    standing     whether a transaction may still take work, and be committed
    refusals     what a client is told when it may not

No store, no broker, no clock: `listener_1_0.transactions` does what is decided here.
"""
