"""How a link is attached: what it names and asks for, whether it may, and which queue serves it.

The connection calls `attach` for each link that its peer opens. `source` serves a receiver,
`attach` a sender; `own_queue` makes the queues that are a link's own. `connections.pending_attach`
waits for all of that to be durable; then the link is granted or refused, and never before. What
both ends have unsettled is compared by `connections.resumption`.

What comes in is the attach of a peer; what goes out is a link that works, or a refusal with the
error that the peer is told. All of it runs on the loop's thread. No message is moved here: that is
the work of the link, which `receiving` and `sending` have.
"""
