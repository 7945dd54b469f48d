"""How much a message may have around its body. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from broker_shim.amqp_1_0.composites import Header
from broker_shim.amqp_1_0.definitions import AmqpError
from broker_shim.protocol_1_0.codec.errors import DecodeError
from broker_shim.protocol_1_0.codec.scanner import item_count
from broker_shim.protocol_1_0.codec.sections import BODY, MessageSection, body_start

_ENTRY_BYTES = 128


def check_header(encoded: bytes, sections: Sequence[MessageSection], most_bytes: int) -> None:
    """Check that the sections around a message's body have at most so many bytes.

    A key counts as 128 bytes at least, and a value: to read one takes as long as to read so many.
    A header section has five fields, or is refused when it is read.

    Raises:
        DecodeError: resource-limit-exceeded: they have more.
    """
    header_bytes, entries = 0, 0
    for code, start, value, end in sections:
        if code not in BODY:
            header_bytes += end - start
            entries += 0 if code == Header.CODE else item_count(encoded, value)
    if max(header_bytes, entries * _ENTRY_BYTES) > most_bytes:
        message = f"header sections of {header_bytes} bytes and {entries // 2} entries: a message"
        message += f" has at most {most_bytes} bytes around its body (an entry counts as 256)"
        raise DecodeError(message, AmqpError.RESOURCE_LIMIT_EXCEEDED)


def check_begun(prefix: bytes) -> None:
    """Check that the body of a message begins within its first bytes.

    Raises:
        DecodeError: resource-limit-exceeded: it does not.
    """
    try:
        body_start(prefix)
    except DecodeError as reason:
        message = f"header sections that do not end within {len(prefix)} bytes"
        raise DecodeError(message, AmqpError.RESOURCE_LIMIT_EXCEEDED) from reason
