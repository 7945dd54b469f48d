"""Links on which a client receives: queue → acquire → wire, and back: outcome → store → settled.

`outgoing_link` is the link; `dispatch` acquires what the queue gave it and has content loaded,
`outgoing_message` keeps the order, `wire` and `large_delivery` write. `consumer_outcomes` makes
what the client decided durable, then confirms it; `transactional_outcomes` does so within a
transaction; `resumption` goes on after the link was away; `browsing_link` looks and takes nothing.
"""
