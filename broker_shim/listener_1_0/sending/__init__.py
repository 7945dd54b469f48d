"""Links on which a client receives: queue → acquire → wire, and back: outcome → store → settled.

`outgoing_link` is the link: it makes what the client decided durable, then confirms it. What the
queue gave it `broker.delivery` brings to its `link_outlet`, which has it written by `wire`.
`held_deliveries` are sent again after the link was away. `browsing_link` looks at a queue and takes
nothing. What a client decides within a transaction is in `retirements`.

`attach` makes such a link, and the virtual host gives it what its queue dispatched. It runs on the
loop's thread. It never sends a message whose acquisition is not durable, and it confirms no outcome
that is not; which message comes next is not its affair but the queue's.
"""
