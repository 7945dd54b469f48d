"""An AMQP 1.0 message as the broker keeps it: encoded bytes ↔ `MessageHeader` and body. Pure.

On the way in, the bytes of a transfer become what a store and a queue know of a message. On the way
out, what a store kept becomes what is written around its content to a peer. Sections and values are
found and read by `protocol_1_0.codec`, which knows AMQP and no broker; here they are mapped.
`message` makes a `MessageHeader` and back, `limits` says how large one may be, and `long_content`
finds content that comes by itself. `annotations` adds those of an entry, and `common_header` shows
a header to selectors. `message_reader` reads messages of one `message_shape` together, and
`framed_runs` frames such. Links call both once a run.

Nothing here keeps a message or speaks to a store.
"""
