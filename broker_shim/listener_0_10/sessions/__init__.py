"""Sessions of AMQP 0-10: their controls, and the numbers of commands both ways.

    session                  one of them, from its attach to its end, over one connection or several
    controls                 what each control does
    vacant_channel           what stands where a channel has no session
    incoming_commands        which of the client's commands are complete, and which came before
    outgoing_commands        what the client was sent, as far as it may be asked for again

A connection hands in frames by a session's first handler; commands go on to
`listener_0_10.commands`.
"""
