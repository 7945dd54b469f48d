"""Local transactions of AMQP 1.0 (part 4): declared on a coordinator's link, discharged as a whole.

`connection_transactions` knows those of a connection, and `local_transaction` is one of them. Its
client's work reaches the store as one transaction when it is discharged, or is undone.
`acquisitions` are the deliveries that a sending link acquired in it.
The rules that need no broker are in `broker_shim.transactions`.

Links hand over what a client does in a transaction, and the connection undoes what is left when it
ends. All of it runs on the loop's thread; nothing of a transaction is in the store before its
discharge, so a crash before that leaves no trace.
"""
