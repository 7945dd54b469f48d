"""Operations of any protocol on queues and exchanges, beside sending and receiving.

    create, delete, bind, purge     `Broker.administration`: an order is decided and carried out for
                                    a client as for an administrator
    queries                         what a queue or an exchange is, and what is bound
    claims, auto_delete             a queue for one session alone; one that goes with its last user
    acquisition                     a message that was browsed becomes its browser's own
    prepared_branches               two-phase transactions: prepared, and decided, also after a
                                    restart
    xid_claims                      each branch is begun once, at whichever broker
    placements                      an administrator's changes of place: resubmit, undo
    expiry_timer                    messages whose time is over leave their queues by a timer
    release, reject, accept         `Settlement`, `delivery.rejection`

They know no protocol and no permission: a listener asks whether its client may, before it calls. A
release that marks a message as redelivered is `Settlement.give_back` with `failed=True`: it raises
the delivery count, and a count above 0 is what a protocol shows as redelivered.
"""
