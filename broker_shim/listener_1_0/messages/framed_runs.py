"""Frame messages together that begin with the same header section. Pure.

Nothing but that section changes on the way out of a message that has no annotations for us, none of
its entry's, and no footer. So of many it is made once, and all else goes as it came.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker_shim.listener_1_0.messages.message import PROTOCOL, FramingHeader
from sparkstore.core.records import MessageHeader

_HEADER_SECTION = b"\x00\x53\x70\xc0"
"""Begins one that has a length in one byte, as nearly all have."""
_GOES_ON = frozenset(b"\x00\x53%c" % code for code in b"\x72\x73\x74\x75\x77")
"""Begins a section that goes on as it came: annotations, properties, a body in one piece."""
_MARKS_OF_FOOTERS = (b"\x00\x53\x78", b"\x00\x00\x00\x78", b"footer")
"""One of these is in a footer's descriptor, however it is encoded; others may have it, too."""


def framed_together(
    first: FramingHeader, headers: Sequence[MessageHeader]
) -> list[FramingHeader] | None:
    """Frame messages as the first of them was; None if they must be framed one by one.

    Args:
        first: What `framing` made of the first, without annotations of its entry.
        headers: Of all, which do not expire, and have failed as often.
    """
    rests = [header.header or b"" for header in headers]
    begin = rests[0]
    end = 5 + begin[4] if begin[:4] == _HEADER_SECTION else 0
    alike = begin[: end + 3]
    if alike[end:] not in _GOES_ON or [rest[: end + 3] for rest in rests].count(alike) < len(rests):
        return None
    kinds = {(header.protocol, header.durable, header.message_type) for header in headers}
    every_byte = b"".join(rests)
    protocol, _durable, message_type = kinds.pop()
    if kinds or protocol != PROTOCOL or message_type == "amqp":
        return None
    if any(mark in every_byte for mark in _MARKS_OF_FOOTERS):
        return None
    section = first.lead[: end - len(begin)]
    rows = zip(headers, rests, strict=True)
    return [FramingHeader(section + rest[end:], b"", header.body_bytes) for header, rest in rows]
