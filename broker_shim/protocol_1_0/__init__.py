"""AMQP 1.0 without I/O: bytes in, events out, commands in, bytes out.

    codec                          values, performatives, frames, sections of messages ↔ bytes
    output budget                  frames that wait to be written; what a peer may cost
    greeting sasl                  who the peer is, and that both speak AMQP 1.0
    transitions                    tables: state × step → state
    serial windows                 numbers that wrap; who may still send how many frames
    links                          one end of a link, its deliveries, what links of a session share
    session channels heartbeat     what holds links; what holds sessions; who is still there
    connection events              all of it: the one class to begin with, and what it tells
    peer_settings                  the limits of a peer, and what we tell it of ourselves

Bytes of a socket come in by `ServerConnection.receive_data`, events go out by `events`. Commands of
the caller come in by methods of connection, session, link and delivery, bytes to write go out by
`data_to_send`. The listener (`broker_shim.listener_1_0`) calls it; it calls nobody.

Pure: no socket, no thread, no clock. Times are arguments (`now_s`, from a clock that only rises).
A machine belongs to one thread. What a peer does wrong never raises: it ends the peer's link,
session or connection with the specification's error and is told as an event. What the caller does
wrong raises `InvalidCommand`.

Decision: the machine answers, it never asks: it opens no session and no link of its own. A broker
has no use for that, and half of the states fall away.
"""
