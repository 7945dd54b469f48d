"""Hold one immutable message, whatever protocol it came over.

Decision: a message that only waits has no object here. Its queue's hold on it is the entry in the
store, some tens of bytes. A `Message`, with named references and interests, is made when somebody
takes it up, one for all who do, and goes with the last of them. A reference object for each
waiting message would cost ten times the entry and say nothing that the entry does not.

Decision: reference and interest are two holds of one shape. A reference says
who has the message; an interest, that its content is wanted in memory. Both have a named holder,
end once however often they are released. If nobody releases them the garbage collector does,
with a line in the log that names the holder: that is a fault, but not a leak.

Decision: a header has one view here, the one that selectors and routes read. A store keeps its
columns as they are, and each listener makes its frames from them: neither calls anything here.
"""
