"""Operations of any protocol on queues and exchanges, beside sending and receiving.

    administration, wiring_limit    create, delete, bind, purge: an order is decided and carried out
                                    for a client as for an administrator
    bulk_operations, placements     move, redrive, put; an administrator's resubmit and undo
    message_moves                   the one transaction of either, of runs of messages
    bulk_turns                      an order about many messages: a part of it a turn of the loop
    queries                         what a queue or an exchange is, and what is bound
    claims, auto_delete, unused_queues      a queue for one session alone; one that goes with its
                                    last user, or that nobody uses
    queue_deletion, alternate_routing       a queue goes, and first its messages elsewhere
    prepared_branches               two-phase transactions: prepared, and decided, also after a
                                    restart
    xid_claims                      each branch is begun once, at whichever broker
    expiry_timer                    messages whose time is over leave their queues by a timer

They know no protocol and no permission: a listener asks whether its client may, before it calls. A
release that marks a message as redelivered is `Settlement.give_back` with `failed=True`: it raises
the delivery count, and a count above 0 is what a protocol shows as redelivered.
"""
