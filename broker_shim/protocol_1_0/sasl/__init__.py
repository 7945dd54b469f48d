"""SASL, the server's side (part 5.3): mechanisms offered, an identity or a refusal out. Pure.

`exchange` asks and answers until it is decided; `mechanisms` has those that end with the peer's
first word, `scram` the challenge and response of passwords. Who the users are is the caller's
affair (`broker_shim.security`).

Frames of a peer come in before its connection is open; challenges, and at the end an identity or a
refusal, go out. The connection of `protocol_1_0` calls it, and the guard of `broker_shim.security`
checks passwords with the mechanisms that are here. No password is kept here, and none is logged.
"""
