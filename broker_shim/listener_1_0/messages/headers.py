"""Headers of this broker's messages: read from AMQP 1.0, shown to selectors, framed for a link."""

from __future__ import annotations

import time
from typing import NamedTuple

from broker_shim.listener_1_0.messages.common_header import AmqpCommonHeader
from broker_shim.listener_1_0.messages.message import PROTOCOL, framing, parse
from broker_shim.messages.header import FramingHeader, HeaderFactory
from broker_shim.store.interface import MessageHeader


class Amqp10Session(NamedTuple):
    """The receiver of a message over AMQP 1.0, as far as its header depends on it.

    Attributes:
        failures: Failed deliveries so far, from the queue it comes from.
        now_us: The time of sending, UTC µs.
        is_first: Nobody had the message of this queue before.
        detail: What its entry there adds to its annotations.
    """

    failures: int
    now_us: int
    is_first: bool = False
    detail: str | None = None

    def framing(self, header: MessageHeader) -> FramingHeader:
        """Frame a header for this link's next delivery. See `messages.header.Session`."""
        return framing(
            header,
            delivery_count=self.failures,
            now_us=self.now_us,
            is_first=self.is_first,
            detail=self.detail,
        )


def _columns(encoded: bytes) -> MessageHeader:
    return parse(encoded, now_us=time.time_ns() // 1000)[0]


HEADERS = HeaderFactory({PROTOCOL: _columns}, AmqpCommonHeader)
