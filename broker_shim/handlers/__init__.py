"""AMQP 0-10's chain of handlers: from a peer's frames to commands that are invoked, and back.

    handler                            the two interfaces, and handlers that stand before others
    handler_chain, add_ons             the three insertion points, and what settings put there
    connection_incoming                frames → assemblies; connection controls are invoked
    session_handlers                   session controls and whole commands are invoked; bytes go out
    content                            puts header and body together, for whoever needs them
    frame_tracer, header_router, rate_limiter        add-ons that come with the broker

          connection incoming           session incoming                  session outgoing
    frames ─► [add-ons] ConnectionIncoming ─► [add-ons] SessionIncoming ─► CommandHandler
    bytes  ◄─────────────────────────────── SessionOutgoing [add-ons] ◄─ assemblies, frames

In come frames (`broker_shim.framing`), out go calls of what a listener gives: `ConnectionControls`,
`SessionControls`, `Commands`. Methods are put together early, header and body where they are
needed: who does so attaches them to the assembly, and who does not forwards the frames. So a
handler that needs one looks at the assembly first. Where no add-on stands before a session, a
message that is there in three frames is put together at once.

Pure: no socket, no thread, no clock of its own. What a peer does wrong is raised
(`RemoteFramingError`, `RemoteCommandError`) up to the handler that ends the connection or session.
"""
