"""Values of a message as the text that SQL columns show. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from broker_shim.amqp_1_0.primitives import Timestamp
from broker_shim.protocol_1_0.codec.values import Opaque, Scalar

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def text_of(value: Scalar) -> str | None:
    """A value as the SQL columns show it; None for null and for what is not a scalar."""
    match value:
        case str():
            return str(value)
        case None | Opaque():
            return None
        case bool():
            return "true" if value else "false"
        case Timestamp():
            return _iso(value)
        case bytes():
            return _printable(value)
        case _:
            return str(value)


def _iso(at_ms: int) -> str:
    try:
        return (_EPOCH + timedelta(milliseconds=at_ms)).isoformat(timespec="milliseconds")
    except OverflowError:
        return str(int(at_ms))


def _printable(content: bytes) -> str:
    try:
        return str(content, "utf-8")
    except UnicodeDecodeError:
        return "0x" + content.hex()
