"""One unit of work of a client, whatever protocol it speaks: all of it is done, or nothing.

`UnitOfWork` collects what a client sends and what it decides about deliveries, and hands all of it
to the store as one transaction. `Posting` is one message of it. Whether a client may still add to
it is the listener's to say (`broker_shim.transactions`).

    what comes in    messages, and decisions about deliveries (`SettledWork`)
    what goes out    one transaction of the store, and what became of it

Listeners call it on the loop's thread. It never puts anything into the store before its commit but
large content, which is forgotten if it is not enqueued.
"""
