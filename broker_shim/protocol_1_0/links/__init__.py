"""Links of one session, both ways: attach, credit, deliveries, settlement (2.6, 2.7). Pure.

`link` is what both ends share, and the deliveries made on it; `sender` and `receiver` are the two
kinds. `outgoing_delivery` cuts a delivery into frames, `credit` and `unsettled` count, `port` puts
dispositions together, and `resumption` decides about each delivery when a link is attached again. A
session feeds them frames and tells of them (`events`); what they have to say goes out by the `port`
that all links of a session share.

Performatives and calls come in, frames and events go out. The listener calls it through the
session, on the loop's thread. It knows no queue, no store and no clock, and does no I/O.
"""
