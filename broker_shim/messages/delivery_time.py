"""When a sender wants its message delivered: read from the message, of any protocol. Pure.

    x-opt-delivery-time    milliseconds since 1970 UTC, as a client of JMS 2.0 says it
    x-opt-delivery-delay   milliseconds from when the message comes; the time wins over it

AMQP 1.0 has them as message annotations. Clients that can set none, and those of AMQP 0-10, say
the same by an application property. A value that is no time is refused: a message that was to wait
must not go out at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker_shim.errors import InvalidRequest
from broker_shim.messages.neutral import neutral_of
from sparkstore.core.annotations import DELIVERY_TIME, MOST_TIME_MS, Annotations
from sparkstore.core.records import MessageHeader

_DELAY = "x-opt-delivery-delay"
_EITHER = b"x-opt-delivery-"
_INTEGERS = frozenset(
    ("ubyte", "ushort", "uint", "ulong", "byte", "short", "int", "long", "timestamp")
)


def may_wait(header: MessageHeader) -> bool:
    """True if a message may say when it is to be delivered: `wanted_time` tells."""
    encoded = header.header
    return encoded is not None and _EITHER in encoded


def wanted_time(header: MessageHeader, now_us: Callable[[], int]) -> Annotations | None:
    """The annotation of a new entry that says when its message may be delivered; None: at once.

    Args:
        header: Of the message, as it came.
        now_us: Tells the time, UTC µs; only asked for a delay.

    Raises:
        InvalidRequest: The message says something that is no time of the years 1970 to 9999.
    """
    if not may_wait(header):
        return None
    neutral = neutral_of(header)
    properties = {**neutral.properties, **neutral.annotations}
    at_ms, delay_ms = _of(properties, DELIVERY_TIME), _of(properties, _DELAY)
    if at_ms is None and delay_ms is not None:
        at_ms = now_us() // 1000 + delay_ms
        if at_ms > MOST_TIME_MS:
            message = f"{_DELAY} is {delay_ms}: a message cannot wait beyond the year 9999"
            raise InvalidRequest(message)
    return None if at_ms is None else {DELIVERY_TIME: ("long", str(at_ms))}


def _of(properties: dict[str, Any], name: str) -> int | None:
    value = properties.get(name)
    if value is None:
        return None
    if value.kind not in _INTEGERS or not 0 <= value.value <= MOST_TIME_MS:
        shown = f"{value.kind} {value.value!r:.40}"
        message = f"{name} is {shown}: say milliseconds, an integer from 0 to {MOST_TIME_MS}"
        raise InvalidRequest(message)
    return int(value.value)
