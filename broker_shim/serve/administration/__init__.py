"""The control socket, by which an administrator asks a running process of a root.

Lines of JSON come in (`sparkstore.operations.wire`); `control` greets, has one order at a time
carried out, and answers reads at once. `control_orders` gives orders to the broker,
`connection_orders` knows connections, those of members too. The composition root makes one server.
"""
