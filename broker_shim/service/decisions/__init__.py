"""What the records of a member mean to the store: steps of its state machine, or a refusal. Pure.

`arrivals` checks records as they come off the wire, `decisions` decides them one by one or several
together, `staged_content` those that bring content in pieces. A member's requests call it under the
store's lock; it does no I/O.
"""
