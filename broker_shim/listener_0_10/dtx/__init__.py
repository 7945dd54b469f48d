"""Distributed transactions of AMQP 0-10 clients: dtx.select to dtx.recover.

    open_branches            branches that are not prepared: who works in them, their timeouts
    branch_begin             a new one: whoever may have begun it is asked
    commands                 what each command does, and the status that it answers

A branch that is not prepared ends with each session that worked in it: its coordinator finds it
gone, which is a rollback. One that is prepared is the broker's (`broker.operations.branches`), and
is decided by any session of a user with the permissions that its work needed.
"""
