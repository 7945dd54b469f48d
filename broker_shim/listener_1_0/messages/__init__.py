"""An encoded AMQP 1.0 message, looked into but not decoded: bytes ↔ header and body. Pure.

`sections` finds where each section begins and ends, `fields` says what they may hold, `types` and
`scan` read single values, `message` makes a `MessageHeader` and back, `annotations` adds those of
an entry, and `common_header` shows a header to selectors. Receiving links call it once a message;
sending links once a delivery.
"""
