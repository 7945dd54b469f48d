"""The meaning of a member's records: steps of the state machine, or a refusal. Pure.

`arrivals` checks records as they come off the wire, `decisions` decides them one by one or several
together, `staged_content` those that bring content in pieces. A member's requests call it under the
store's lock; it does no I/O.

Records as they were sent come in, steps or the reason of a refusal go out. What is decided here is
what the state machine of a store in this process would decide, so a broker sees no difference.
Nothing here keeps anything but the content of a member that is not whole yet.
"""
