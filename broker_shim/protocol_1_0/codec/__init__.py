"""Bytes ↔ values, composites, frames of AMQP 1.0 (parts 1 and 2.3). Pure.

`decoder` and `encoder` do values, `composites` described lists by the generated table in
`broker_shim.amqp_1_0`, `transfers` the one performative that must be fast, and `frames` the byte
stream. A message is not decoded: `scanner` finds single values among encoded ones, `sections` the
parts of a message and what they may hold. `errors` says whose fault bad bytes are, and `sizes` what
decoded ones take in memory.

In come bytes of a peer, out go values or a `DecodeError`, and the other way round. The engine and
the listener's messages call it; it knows no connection, no session and no broker.
"""
