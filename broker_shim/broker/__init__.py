"""The virtual host: queues, and which message goes to whom. It knows no protocol's frames or links.

    virtual_host             all queues of one broker; it alone joins the rooms below
    orders/                  what protocols and administrators ask beside sending and receiving
    delivery/, transactions/ messages on their way to one consumer; a client's unit of work
    flow/                    messages between the store and the queues: served, settled, replaced
    queues/                  who gets which message next: pure
    storage/                 the store as the loop sees it
    wiring/                  what a name means, and which queues a message goes to
    metrics, settings        what is counted; what it was started with

Links of a protocol call in, on the loop's thread; what they asked for is answered by a callback
when the store has it. A message may be dispatched when its enqueue has completed, and a queue is
used when its creation has. So nothing a client was shown is undone by a crash.
"""
