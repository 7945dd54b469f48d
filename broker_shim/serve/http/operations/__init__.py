"""Orders about many messages over HTTP: requeue, redrive, undo, and what history has of them.

Requests come from `http.endpoints`; what they decide is decided by `sparkstore.operations`, and the
broker carries it out in turn with the orders of the control socket.
"""
