"""Connections and sessions of AMQP 0-10: controls, numbers of commands, messages both ways.

    session_host             what all connections share: sessions by name, queues of sessions
    connection               a socket's bytes; its controls; the session of each channel
    vacant_channel           what stands where a channel has no session
    session, controls        a session from its attach to its end, over one connection or several
    incoming_commands        which of the client's commands are complete, and which came before
    outgoing_commands        what the client was sent, as far as it may be asked for again
    session_publisher        the client's messages, on their way to queues
    subscriptions, subscription             its consumers, and what they hold
    authorization            who may do what there, and which queue a name means

These point at each other, so they are one room. A connection hands in frames by a session's first
handler; a command goes by `SessionHost.invoke` to `listener_0_10.commands`.
"""
