"""AMQP 0-10 on the wire, without I/O: bytes ↔ frames, segments, assemblies. Pure.

    frames                         the unit of the wire: type, flags, channel, payload; undecoded
    segments assembly              frames of one kind put together; a method with header and body
    order                          which frame may follow which, and how much of it is taken
    values decoder encoder         single values by the generated types of `broker_shim.amqp_0_10`
    methods                        controls, commands and structs by the generated tables
    sequences                      command ids that wrap; sets of them
    errors                         whose fault it is, and what ends because of it

In come a peer's bytes (`FrameReader.feed`) and go out frames, which become the complete methods of
assemblies (`MethodSegment`) as they come. Header and body stay frames until somebody needs them and
puts them together (`HeaderSegment`, `BodySegment`). The other way, `frames_of` makes frames of an
assembly. The handlers (`broker_shim.handlers`) call it; it knows no session and no broker.

Decision: a frame's payload is bytes, not a view: whoever keeps one header would keep a whole read.
"""
