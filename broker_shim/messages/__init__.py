"""Hold immutable messages, whatever protocol they came over.

Decision: a message that only waits has no object here. Its queue's hold on it is the entry in the
store, some tens of bytes. Whoever takes messages up makes one `Hold` on all of them, however many
they are, and cuts it when something parts them. A hold for each waiting message would cost ten
times the entry and say nothing that the entry does not.

Decision: a hold says by name who has the messages, and whether their content is wanted in memory.
It ends once, however often it is released. If nobody releases it the garbage collector does, with a
line in the log that names the holder: that is a fault, but not a leak.

Decision: a header has one view here, the one that selectors and routes read. A store keeps its
columns as they are, and each listener makes its frames from them: neither calls anything here.
"""
