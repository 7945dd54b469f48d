"""Message annotations of AMQP 1.0 (section 3.2.3) that an entry adds to its message. Pure.

What a store keeps of them is `sparkstore.core.annotations`; here they are read from the outcome
`modified` (section 3.4.5), and written into the message on its way to a peer. A value that is no
number and no text (a list, a map, null, …) is kept as type `amqp`: its encoding in hexadecimal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from uuid import UUID

from broker_shim.amqp_1_0.definitions import MESSAGE_ANNOTATIONS_SECTION
from broker_shim.amqp_1_0.primitives import CLASSES, Symbol
from broker_shim.protocol_1_0.codec.encoder import BY_KIND, UNWRITABLE, described, mapped, write
from broker_shim.protocol_1_0.codec.errors import DecodeError, InvalidCommand
from broker_shim.protocol_1_0.codec.scanner import entries_start, entry_at, scalar_at, skip
from broker_shim.protocol_1_0.codec.sections import values_before_body
from sparkstore.core.annotations import Annotations, annotations_of
from sparkstore.core.records import MessageHeader

_RAW = "amqp"
_DESTINATION, _TOPICS = b"x-opt-jms-dest", frozenset({1, 3})
"""The annotation of the JMS mapping, and its values of a topic and of a temporary one."""

_READ: Mapping[str, Callable[[str], Any]] = {
    "boolean": lambda text: text == "true",
    "binary": bytes.fromhex,
    "uuid": UUID,
    **dict.fromkeys(("ubyte", "ushort", "uint", "ulong", "byte", "short", "int", "long"), int),
    "timestamp": int,
    **dict.fromkeys(("float", "double"), float),
    **dict.fromkeys(("string", "symbol"), str),
}
_KINDS: Mapping[type, str] = {
    bool: "boolean",
    str: "string",
    bytes: "binary",
    UUID: "uuid",
    int: "long",
    float: "double",
    **{cls: kind for kind, cls in CLASSES.items() if kind in _READ},
}


def is_for_topic(header: MessageHeader) -> bool:
    """True if a message says that its `to` is a topic: a producer of JMS without a destination."""
    encoded = header.header or b""
    if _DESTINATION not in encoded:
        return False
    at = values_before_body(encoded).get(MESSAGE_ANNOTATIONS_SECTION)
    return at is not None and entry_at(encoded, at, _DESTINATION) in _TOPICS


def encoded_annotations(given: Mapping[Any, Any] | None) -> Annotations:
    """Keep the annotations that an outcome adds.

    Keys that are no symbols are left out: there are none (2.8.14).
    """
    return {
        str(key): _kept(value) for key, value in (given or {}).items() if isinstance(key, Symbol)
    }


def annotated(encoded: bytes, value: int | None, detail: str) -> bytes:
    """The section of message annotations with those of an entry, which win.

    Args:
        encoded: The message as it came.
        value: Where the value of its own section begins; None if it has none.
        detail: Of the entry.
    """
    items = dict(_given(encoded, value)) | dict(_added(detail))
    if not items:
        return b""
    return described(MESSAGE_ANNOTATIONS_SECTION, mapped(items.values()))


def _kept(value: Any) -> tuple[str, str]:
    kind = _KINDS.get(type(value))
    if kind is None:
        return _RAW, write(value).hex()
    if isinstance(value, bytes):
        return kind, value.hex()
    return kind, str(value).lower() if isinstance(value, bool) else str(value)


def _given(encoded: bytes, value: int | None) -> Iterator[tuple[object, bytes]]:
    """Key and encoding of each annotation that the message came with."""
    if value is None or encoded[value] == 0x40:
        return
    _count, at, end = entries_start(encoded, value)
    while at < end:
        key, behind = scalar_at(encoded, at)
        after = skip(encoded, behind)
        yield key, encoded[at:after]
        at = after


def _added(detail: str) -> Iterator[tuple[object, bytes]]:
    """Read the annotations of an entry; what this release cannot read is left out."""
    for key, (kind, text) in annotations_of(detail).items():
        try:
            encoded = bytes.fromhex(text) if kind == _RAW else BY_KIND[kind](_READ[kind](text))
            if skip(encoded, 0) == len(encoded):
                yield key, write(Symbol(key)) + encoded
        except (ValueError, KeyError, DecodeError, InvalidCommand, *UNWRITABLE):
            continue
