"""The bytes of one value, in the shortest encoding. Pure; the layout is drawn in `decoder`.

A writer is called as `writer(value)` and returns all bytes, the constructor's among them. All of
them are reached through `write` and `encoded_composite` (composites.py), which make one
`InvalidCommand` of a value that its type cannot hold.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from broker_shim.amqp_1_0.primitives import CLASSES, ENCODINGS
from broker_shim.protocol_1_0.codec.errors import InvalidCommand
from broker_shim.protocol_1_0.codec.values import Array, Described

Writer = Callable[[Any], bytes]

NULL = b"\x40"

UNWRITABLE = (struct.error, OverflowError, UnicodeError, TypeError, AttributeError)
"""What the writers raise for a value that its type cannot hold."""


def write(value: Any) -> bytes:
    """A value by its class (see `values`); int is written as long, float as double.

    Raises:
        InvalidCommand: No AMQP type holds it.
    """
    try:
        return written(value)
    except UNWRITABLE as reason:
        message = f"not a value of AMQP 1.0: {value!r:.80} ({reason})"
        raise InvalidCommand(message) from reason


def written(value: Any) -> bytes:
    """Encode a value, as `write`, for other writers: it raises what `UNWRITABLE` lists."""
    writer = BY_CLASS.get(type(value))
    if writer is None:
        message = f"of class {type(value).__name__}"
        raise TypeError(message)
    return writer(value)


def listed(items: Sequence[bytes], *, is_wide: bool = False) -> bytes:
    """A list of items that are encoded already."""
    if not (items or is_wide):
        return b"\x45"
    return _compound(0xC0, 0xD0, len(items), b"".join(items), is_wide=is_wide)


def mapped(entries: Collection[bytes], *, is_wide: bool = False) -> bytes:
    """A map of entries that are encoded already, key and value in one."""
    return _compound(0xC1, 0xD1, 2 * len(entries), b"".join(entries), is_wide=is_wide)


def described(code: int, encoded: bytes) -> bytes:
    """A value that is encoded already, behind a descriptor below 256."""
    return b"\x00\x53" + bytes((code,)) + encoded


def _compound(code_1: int, code_4: int, count: int, content: bytes, *, is_wide: bool) -> bytes:
    size = len(content)
    if size < 255 and count < 256 and not is_wide:
        return bytes((code_1, size + 1, count)) + content
    return struct.pack(">BII", code_4, size + 4, count) + content


def _list(value: list[Any], *, is_wide: bool = False) -> bytes:
    return listed([written(item) for item in value], is_wide=is_wide)


def _map(value: dict[Any, Any], *, is_wide: bool = False) -> bytes:
    entries = [written(key) + written(item) for key, item in value.items()]
    return mapped(entries, is_wide=is_wide)


def _array(value: Array, *, is_wide: bool = False) -> bytes:
    """Items in the widest encoding of their type: one constructor has to do for all."""
    code, writer = _WIDEST[value.kind]
    constructor = bytes((code,))
    if value.descriptor is not None:
        constructor = b"\x00" + written(value.descriptor) + constructor
    items = b"".join([writer(item)[1:] for item in value.items])
    return _compound(0xE0, 0xF0, len(value.items), constructor + items, is_wide=is_wide)


def _described(value: Described) -> bytes:
    return b"\x00" + written(value.descriptor) + written(value.value)


def _boolean(value: bool) -> bytes:  # noqa: FBT001  # a writer takes its value
    return b"\x41" if value else b"\x42"


def _packed(code: int, layout: str) -> Writer:
    pack = struct.Struct(">B" + layout).pack
    return lambda value: pack(code, value)


def _small_unsigned(code: int, layout: str, small_code: int, zero_code: int) -> Writer:
    pack = struct.Struct(">B" + layout).pack
    small = [bytes((zero_code,)), *(bytes((small_code, value)) for value in range(1, 256))]

    def unsigned(value: int) -> bytes:
        return small[value] if 0 <= value < 256 else pack(code, value)

    return unsigned


def _small_signed(code: int, layout: str, small_code: int) -> Writer:
    pack = struct.Struct(">B" + layout).pack

    def signed(value: int) -> bytes:
        return bytes((small_code, value & 0xFF)) if -128 <= value < 128 else pack(code, value)

    return signed


def _variable(code_1: int, code_4: int, charset: str | None, *, is_wide: bool = False) -> Writer:
    most = 0 if is_wide else 256

    def variable(value: Any) -> bytes:
        content: bytes = bytes(memoryview(value)) if charset is None else value.encode(charset)
        size = len(content)
        if size < most:
            return bytes((code_1, size)) + content
        return struct.pack(">BI", code_4, size) + content

    return variable


def _decimal(code: int, size: int) -> Writer:
    def decimal(value: bytes) -> bytes:
        if len(value) != size:
            message = f"a decimal of {len(value)} bytes, not {size}"
            raise TypeError(message)
        return bytes((code,)) + value

    return decimal


def _char(value: str) -> bytes:
    content = value.encode("utf-32-be")
    if len(content) != 4:
        raise TypeError("a char is one character")
    return b"\x73" + content


BY_KIND: dict[str, Writer] = {
    "null": lambda _value: NULL,
    "boolean": _boolean,
    "ubyte": _packed(0x50, "B"),
    "ushort": _packed(0x60, "H"),
    "uint": _small_unsigned(0x70, "I", 0x52, 0x43),
    "ulong": _small_unsigned(0x80, "Q", 0x53, 0x44),
    "byte": _packed(0x51, "b"),
    "short": _packed(0x61, "h"),
    "int": _small_signed(0x71, "i", 0x54),
    "long": _small_signed(0x81, "q", 0x55),
    "float": _packed(0x72, "f"),
    "double": _packed(0x82, "d"),
    "decimal32": _decimal(0x74, 4),
    "decimal64": _decimal(0x84, 8),
    "decimal128": _decimal(0x94, 16),
    "char": _char,
    "timestamp": _packed(0x83, "q"),
    "uuid": lambda value: b"\x98" + value.bytes,
    "binary": _variable(0xA0, 0xB0, None),
    "string": _variable(0xA1, 0xB1, "utf-8"),
    "symbol": _variable(0xA3, 0xB3, "ascii"),
    "list": _list,
    "map": _map,
    "array": _array,
}
"""The shortest encoding of each type of the table."""

_WIDEST: dict[str, tuple[int, Writer]] = {
    kind: (max(encodings, key=lambda encoding: encoding[2])[0], BY_KIND[kind])
    for kind, encodings in ENCODINGS.items()
}
_WIDEST |= {
    "boolean": (0x56, lambda value: b"\x56\x01" if value else b"\x56\x00"),
    "uint": (0x70, _packed(0x70, "I")),
    "ulong": (0x80, _packed(0x80, "Q")),
    "int": (0x71, _packed(0x71, "i")),
    "long": (0x81, _packed(0x81, "q")),
    "binary": (0xB0, _variable(0xA0, 0xB0, None, is_wide=True)),
    "string": (0xB1, _variable(0xA1, 0xB1, "utf-8", is_wide=True)),
    "symbol": (0xB3, _variable(0xA3, 0xB3, "ascii", is_wide=True)),
    "list": (0xD0, partial(_list, is_wide=True)),
    "map": (0xD1, partial(_map, is_wide=True)),
    "array": (0xF0, partial(_array, is_wide=True)),
}

BY_CLASS: dict[type, Writer] = {
    type(None): BY_KIND["null"],
    bool: BY_KIND["boolean"],
    int: BY_KIND["long"],
    float: BY_KIND["double"],
    str: BY_KIND["string"],
    bytes: BY_KIND["binary"],
    UUID: BY_KIND["uuid"],
    list: _list,
    dict: _map,
    Array: _array,
    Described: _described,
    **{cls: BY_KIND[kind] for kind, cls in CLASSES.items()},
}
"""Class → writer; composites.py adds its own."""
