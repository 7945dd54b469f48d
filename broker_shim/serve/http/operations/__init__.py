"""Orders about messages over HTTP, what history has of them, and what mends a broker's queues.

    redrive_requests, history_requests, event_stream, upkeep_requests     operations, undo, events
    branch_requests, resubmit_requests, copy_requests, definition_requests     `repair_endpoints`

Requests come from the tables of endpoints; what they decide is decided by `sparkstore.operations`,
and the broker carries it out in turn with the orders of the control socket.
"""
