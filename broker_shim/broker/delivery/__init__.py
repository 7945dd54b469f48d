"""Messages on their way from a queue to one consumer, whatever protocol it speaks.

`ConsumerDelivery` decides once what becomes of each message: it is acquired, loaded, sent in its
turn, or given back, lost, damaged or too old. `CopyDelivery` brings copies to who only looks, and
`BrowseCursor` says of what; by `Acquisition` a browsed message becomes its browser's own.
`Undelivered` says what becomes of what is not sent, `ConsumerHoldings` ends what a client holds,
and `Rejection` moves what it rejects. A `TakenRun` is some of them, and `ContentLine` keeps their
order. A listener brings an `Outlet`: its credit, its frames, its tags.

    what comes in    ids of messages that a queue holds for a consumer
    what goes out    runs of messages whose content is in memory, to the outlet; the others go
                     back to their queue

The queue calls a listener's consumer, which calls this. All of it runs on the loop's thread.
"""
