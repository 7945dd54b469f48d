"""How a link is attached: what it names and asks for, whether it may, and which queue serves it.

An attach comes from `connection`; `pending_attach` waits for what it names to be durable, then the
link is granted or refused. `source` and `filters` read what a receiver wants, `subscription_queue`
and `own_queue` make the queues that are a link's own, `terminus_lookup` answers who asks for what
there is, `resumption` compares what both ends have unsettled, and `link_recovery` makes links of an
earlier life of the broker known at its start.
"""
