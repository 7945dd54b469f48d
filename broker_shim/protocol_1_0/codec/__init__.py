"""Bytes ↔ values, composites, frames of AMQP 1.0 (parts 1 and 2.3). Pure.

`decoder` and `encoder` do primitive values, `composites` described lists by the generated table in
`broker_shim.amqp_1_0`, `transfers` the one performative that must be fast, `frames` the byte
stream, and `sections` looks into a message. `errors` says whose fault bad bytes are. The engine
calls it; it knows no connection and no session.
"""
