"""Describe one end of a link as a value: its owner, what was granted, when it ends. Pure.

    terminus_values  source, target and what was granted, as values ↔ JSON
    terminus    our end of a link, attached or not: what was granted, and its unsettled deliveries
    owner       whose a link is, by the container id in its key
    terminus_expiry  when an unattached terminus ends
    proof       which deliveries the sender must know the end of by now

The registry asks these modules under its lock; times come in as arguments, nothing is kept here.

What comes in is what a peer asked for, or what a store kept; what goes out are values that can be
kept again. The link stores of `broker_shim.store` write them down.
"""
