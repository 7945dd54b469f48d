"""A store made of several: the first decides, the others get what it accepted (QPID-2893).

    store_chain  `MessageStoreChain`, a `BrokerStore`: a call is complete when all have completed it
    place      of a member: what it owes, and what becomes of it when it fails
    calls      what the others are told: one call, or those of a transaction together
    chain_branches      two-phase commit: members hear of it when the first store has promised it
    mirror     a member that is a `BrokerStore` itself, and how it catches up when the chain opens
    call_line  of its calls: those that wait for storage on a thread of their own, in order
    difference what a store lacks of another: calls that make them alike. Pure
    branches_in_doubt   the part of that which is about branches in doubt. Pure
    audit      a member that writes one line for each call

A broker calls the chain as it would call its first store. The chain never decides anything, and
never reads but from the first.
"""
