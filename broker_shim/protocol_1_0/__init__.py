"""AMQP 1.0 without I/O: bytes in, events out, commands in, bytes out.

    generate                       conf/amqp_1_0.toml → broker_shim/amqp_1_0, for developers
    errors values                  whose fault, and where; what a value is
    reading writing composites     one value ↔ its bytes
    sections                       a message, looked into but not decoded
    frames output                  the byte stream ↔ frames and protocol headers
    greeting sasl mechanisms scram who the peer is, and that both speak AMQP 1.0
    states                         tables: state × step → state
    serial windows credit budget   numbers that wrap, who may still send what, what is remembered
    deliveries settlement sending  what is not settled yet; dispositions in ranges; frames to come
    port link receiver sender      one end of a link, and what the links of a session share
    session channels heartbeat     what holds links; what holds sessions; who is still there
    connection events settings     all of it: the one class to begin with, what it tells, its limits

Pure: no socket, no thread, no clock. Times are arguments (`now_s`, from a clock that only rises).
A machine belongs to one thread. What a peer does wrong never raises: it ends the peer's link,
session or connection with the specification's error and is told as an event. What the caller does
wrong raises `InvalidCommand`.

Decision: the machine answers, it never asks: it opens no session and no link of its own. A broker
has no use for that, and half of the states fall away.
"""
