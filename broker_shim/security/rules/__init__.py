"""Decide what security decides without a socket, a file or a clock: who, how many, where. Pure.

    users           names, roles and what was derived from their passwords
    permissions     who may do what on which addresses
    limits          how many connections of a user, how many half-open ones of an address
    attempts        how long a failed login waits for its answer

The guard asks these modules on the loop's thread; the time is an argument.

The listener asks what a user may do on an address at each attach and each message. Settings come in
as values that others have read, answers go out; nothing here refuses by itself: who asked does.
"""
