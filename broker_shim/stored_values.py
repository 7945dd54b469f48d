"""Values of stored messages with the types that their sender gave them, for SQL. Pure.

Columns of a message as they are stored come in; values go out. The entry point `messages` of the
group `sparkstore.decoders` leads to `DECODER`: `sparkstore` knows no protocol.

Decimals are in the binary integer decimal encoding of IEEE 754-2008:

    sign | 00…10 and the rest of the exponent | coefficient
    sign | 11 | exponent | coefficient, which begins with 100
    sign | 11110 | …     infinity
    sign | 11111 | …     no number

The protocol's decoder leaves them as bytes: nobody but SQL asks for their value.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from broker_shim.amqp_1_0.definitions import AMQP_VALUE_SECTION, APPLICATION_PROPERTIES_SECTION
from broker_shim.amqp_1_0.primitives import CLASSES, Decimal32, Decimal64, Decimal128, Timestamp
from broker_shim.edited_messages import edited
from broker_shim.listener_1_0.messages.message import PROTOCOL
from broker_shim.messages.neutral import neutral_of
from broker_shim.protocol_1_0.codec.decoder import read
from broker_shim.protocol_1_0.codec.errors import DecodeError
from broker_shim.protocol_1_0.codec.sections import sections_of, values_before_body
from broker_shim.protocol_1_0.codec.values import Array, Described
from broker_shim.serve.headers import all_headers
from broker_shim.store.interface import MessageHeader
from sparkstore.content.edits import MessageEdit

_EXPONENT_BITS = {4: 8, 8: 10, 16: 14}
_DIGITS = {4: 7, 8: 16, 16: 34}
_BIAS = {4: 101, 8: 398, 16: 6176}


def decimal_of(encoded: bytes) -> Decimal:
    """Return the number that 4, 8 or 16 bytes stand for; a coefficient of too many digits is 0."""
    width, bits = len(encoded), int.from_bytes(encoded)
    exponent_bits = _EXPONENT_BITS[width]
    rest = 8 * width - 1 - exponent_bits
    sign, above = bits >> (8 * width - 1), bits >> (8 * width - 6) & 0b11111
    if above >= 0b11110:
        return Decimal("NaN" if above & 1 else "-Infinity" if sign else "Infinity")
    coefficient = bits & (1 << rest) - 1
    if above >= 0b11000:
        rest -= 2
        coefficient = 0b100 << rest | bits & (1 << rest) - 1
    exponent = (bits >> rest & (1 << exponent_bits) - 1) - _BIAS[width]
    digits = str(coefficient)
    if len(digits) > _DIGITS[width]:
        digits = "0"
    return Decimal((sign, tuple(map(int, digits)), exponent))


Typed = tuple[str, Any]
"""The name of a type in AMQP 1.0's words, and a value of Python's own classes."""

_KINDS = {cls: kind for kind, cls in CLASSES.items()}
_OWN_KINDS = {bool: "boolean", int: "long", float: "double", str: "string", bytes: "binary"}
_DECIMALS = (Decimal32, Decimal64, Decimal128)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

all_headers()


def properties_of(protocol: str, header: bytes) -> dict[str, Typed]:
    """Read the application properties of a message, nulls too; a damaged header has none."""
    if protocol != PROTOCOL:
        neutral = neutral_of(MessageHeader(protocol, header))
        return {name: (typed.kind, typed.value) for name, typed in neutral.properties.items()}
    try:
        at = values_before_body(header).get(APPLICATION_PROPERTIES_SECTION)
        properties = {} if at is None else read(header, at)[0]
    except DecodeError:
        return {}
    return {str(name): _typed(value) for name, value in properties.items()}


def body_of(protocol: str, message_type: str | None, body: bytes) -> str | None:
    """Return a body that is a value as JSON; None for one of bytes, which SQL has as it is.

    Text is a JSON string, an AMQP value itself, and sequences are a list with a list for each.
    """
    if message_type == "text":
        return json.dumps(body.decode(errors="replace"), ensure_ascii=False)
    if protocol != PROTOCOL or message_type != "amqp":
        return None
    try:
        sections = [(code, read(body, value)[0]) for code, _, value, _ in sections_of(body)]
    except DecodeError:
        return None
    if not sections:
        return None
    values = [_plain(value) for _code, value in sections]
    body_value = values[0] if [code for code, _ in sections] == [AMQP_VALUE_SECTION] else values
    return json.dumps(body_value, ensure_ascii=False)


def _typed(value: Any) -> Typed:
    cls = type(value)
    if value is None:
        return "null", None
    if isinstance(value, _DECIMALS):
        return cls.__name__.lower(), decimal_of(value)
    kind = _KINDS.get(cls) or _OWN_KINDS.get(cls) or cls.__name__.lower()
    return kind, cls.__mro__[1](value) if cls in _KINDS else value


def _plain(value: Any) -> Any:
    """Bring a decoded value to what JSON has: bytes in hexadecimal, times and decimals as text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Mapping):
        return dict(_items(value))
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Array):
        return [_plain(item) for item in value.items]
    if isinstance(value, Described):
        return {"descriptor": _plain(value.descriptor), "value": _plain(value.value)}
    return _plain_scalar(value)


def _plain_scalar(value: Any) -> Any:
    if isinstance(value, Timestamp):
        return _moment(value)
    if isinstance(value, _DECIMALS):
        return str(decimal_of(value))
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return "0x" + value.hex() if isinstance(value, bytes) else str(value)


def _items(value: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    for key, item in value.items():
        text = _plain(key)
        yield text if isinstance(text, str) else json.dumps(text), _plain(item)


def _moment(at_ms: int) -> str:
    try:
        return (_EPOCH + timedelta(milliseconds=at_ms)).isoformat(timespec="milliseconds")
    except OverflowError:
        return str(int(at_ms))


class StoredValueDecoder(NamedTuple):
    """Functions that read values of a stored message.

    Attributes:
        properties_of: Reads its application properties.
        body_of: Writes its body as JSON, if it is a value.
        edited: Makes the message that an edit asks for.
    """

    properties_of: Callable[[str, bytes], dict[str, Typed]]
    body_of: Callable[[str, str | None, bytes], str | None]
    edited: Callable[[MessageHeader, bytes, MessageEdit], tuple[MessageHeader, bytes]]


DECODER = StoredValueDecoder(properties_of, body_of, edited)
"""The decoder of all protocols that a broker speaks."""
