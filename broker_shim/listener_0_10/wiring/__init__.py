"""Commands that declare, bind, ask about and delete queues and exchanges.

Each is called with the session, the command and its number, and completes that when the store has
done it, or raises `RemoteCommandError`. The table of `listener_0_10.commands` calls them.
"""
