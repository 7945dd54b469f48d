"""Distributed transactions of AMQP 0-10 clients: dtx.select to dtx.recover.

    branch_begin             a new one: whoever may have begun it is asked
    dtx_commands             what each command does, and the status that it answers

A branch that is not prepared (`open_branches`) fails with a session that works in it, and its
coordinator is told of a rollback. One that was ended lives on after its session, unless that was
lost: any session of its user decides it. One that is prepared is the broker's
(`broker.orders.prepared_branches`), and is decided by any session of a user with the permissions
that its work needed.
"""
