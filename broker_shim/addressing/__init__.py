"""Names of queues: `address::queue` and short names (source: ARTEMIS-1093).

A queue is on one address, and two addresses may each have a queue of one name. Three
scenarios, with address1::q1, address1::q2 and address2::q1:

    1  q2            one queue has this short name: that one
    2  address2::q1  said in full: that one, nothing to decide
    3  q1            two have it: no result; who asked warns, and names both

Decision: no counter of addresses beside the bindings (as ARTEMIS-1093 has it): the set of
addresses is kept, and what a short name means is worked out from it when it changes. So there is
nothing that could get out of step. And every text that means one queue is a key of a dict, so a
look-up cuts and joins no strings, which was a worry there.

Decision: a queue on the address of its own name (each that was made by a plain name) is what its
name says, whatever other addresses have. A queue that a stranger makes elsewhere must not take a
name away from clients who use it.
"""
