"""Large content that a message says it will have, before all of it has come. Pure."""

from __future__ import annotations

from typing import NamedTuple

from broker_shim.amqp_1_0.definitions import AMQP_VALUE_SECTION, DATA_SECTION
from broker_shim.protocol_1_0.codec.errors import DecodeError
from broker_shim.protocol_1_0.codec.scanner import content_start
from broker_shim.protocol_1_0.codec.sections import body_start

_LONG_TYPES = {
    (DATA_SECTION, 0xB0): "data",
    (AMQP_VALUE_SECTION, 0xB0): "binary",
    (AMQP_VALUE_SECTION, 0xB1): "text",
}
"""Section and constructor of content with a length of four bytes → type of the message."""


class LongContent(NamedTuple):
    """Content that a message says it will have.

    Attributes:
        message_type: What the column of that name says of the message: data, binary or text.
        start: Where the content begins in the message.
        length: How many bytes of it there will be.
    """

    message_type: str
    start: int
    length: int


def long_content(prefix: bytes) -> LongContent | None:
    """The one large piece of content of a message that has not come whole.

    That is the first section of its body, if that is data, or a value that is binary or text, with
    a length of four bytes. None for anything else, which is not understood before it is whole.

    Args:
        prefix: The message from its beginning on, well into its content.
    """
    try:
        code, value = body_start(prefix)
        start = content_start(prefix, value)
    except DecodeError:
        return None
    message_type = _LONG_TYPES.get((code, prefix[value]))
    if message_type is None or start > len(prefix):
        return None
    return LongContent(message_type, start, int.from_bytes(prefix[value + 1 : start], "big"))
