"""Links on which a client sends: bytes → message → store → outcome.

`incoming_link` is the link, and `link_route` where its messages go. `incoming_message` is one
message on its way into the store in pieces, `message_runs` those that came whole. `link_credit`
says how many may be under way, and `received_deliveries` what a link that may be resumed remembers.
What comes on a `command_link` goes to no queue: `coordinator` is that of transactions.
A sender is told an outcome when the store has completed the enqueue, and never before.

`attach` makes such a link, the connection hands it what its peer sends, and the virtual host puts
its messages on queues. It runs on the loop's thread and never waits there: what a store takes its
time for comes back through the inbox. A message is never decoded as a whole.
"""
