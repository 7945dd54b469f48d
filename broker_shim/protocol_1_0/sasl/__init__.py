"""SASL, the server's side (part 5.3): mechanisms offered, an identity or a refusal out. Pure.

`exchange` asks and answers until it is decided; `mechanisms` has those that end with the peer's
first word, `scram` the challenge and response of passwords. Who the users are is the caller's
affair (`broker_shim.security`).
"""
