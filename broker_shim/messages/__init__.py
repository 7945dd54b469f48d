"""Hold one immutable message, with its header in three views.

Decision: a message that only waits has no object here. Its queue's hold on it is the entry in the
store, some tens of bytes. A `Message`, with named references and interests, is made when somebody
takes it up, one for all who do, and goes with the last of them. A reference object for each
waiting message would cost ten times the entry and say nothing that the entry does not.

Decision: reference and interest are two holds of one shape. A reference says
who has the message; an interest, that its content is wanted in memory. Both have a named holder,
end once however often they are released. If nobody releases them the garbage collector does,
with a line in the log that names the holder: that is a fault, but not a leak.

Decision: the framing view is made for a session, not asked with a session at each call. What a
header looks like on the wire is worked out once, then written in as many parts as frames need.
AMQP 1.0 has sections after the content (the footer): `tail`.
"""
