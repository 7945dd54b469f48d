"""The bytes of one value; see `decoder` for their form. Pure."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any
from uuid import UUID

from broker_shim.amqp_0_10.primitives import CLASSES, ENCODINGS
from broker_shim.framing.decoder import CHARSETS, FIXED_WIDTHS, LENGTH_WIDTHS, NUMBERS
from broker_shim.framing.errors import LocalFramingError
from broker_shim.framing.values import TypedArray, UnknownStruct, UnknownValue

Writer = Callable[[Any], bytes]

BY_KIND: dict[str, Writer] = {}
"""Type → writer of a value, without the type's code."""

BY_CLASS: dict[type, tuple[bytes, Writer]] = {}
"""Class of a value of open type → its code, and its writer; `methods` adds structs."""

UNWRITABLE = (
    *(struct.error, UnicodeEncodeError, OverflowError),
    *(TypeError, AttributeError, KeyError, RecursionError),
)
"""What writers raise for a value that does not fit, or is nested without end."""

_LENGTHS = {1: struct.Struct(">B"), 2: struct.Struct(">H"), 4: struct.Struct(">I")}
_MOST_INT64 = (1 << 63) - 1


def written(value: Any) -> bytes:
    """Code and value of what may be of any type."""
    encoding = BY_CLASS.get(type(value))
    if encoding is None:
        message = f"a value that AMQP 0-10 has no type for: {value!r:.80}"
        raise LocalFramingError(message)
    if type(value) is int and value > _MOST_INT64:
        encoding = _UINT64
    code, writer = encoding
    return code + writer(value)


def sized(content: bytes, width: int = 4) -> bytes:
    """Put the length of some bytes before them."""
    return _LENGTHS[width].pack(len(content)) + content


def _map(value: dict[str, Any]) -> bytes:
    items = b"".join([BY_KIND["str8"](key) + written(item) for key, item in value.items()])
    return sized(_LENGTHS[4].pack(len(value)) + items)


def _list(value: list[Any]) -> bytes:
    return sized(_LENGTHS[4].pack(len(value)) + b"".join([written(item) for item in value]))


def _array(value: TypedArray | tuple[Any, ...] | list[Any]) -> bytes:
    """Encode a field of values without a type as an array: text, structs, or nothing."""
    if not isinstance(value, TypedArray):
        is_text = not value or isinstance(value[0], str)
        value = TypedArray("str16" if is_text else "struct32", tuple(value))
    writer = BY_KIND[value.kind]
    head = bytes((ENCODINGS[value.kind][0][0],)) + _LENGTHS[4].pack(len(value.items))
    return sized(head + b"".join([writer(item) for item in value.items]))


def _struct32(value: Any) -> bytes:
    code, write = BY_CLASS[type(value)]
    if code != _STRUCT32:
        raise LocalFramingError(f"a struct is wanted, not {value!r:.80}")
    return write(value)


def _unknown_struct(value: UnknownStruct) -> bytes:
    return sized(_LENGTHS[2].pack(value.code) + value.content)


def _unknown_value(value: UnknownValue) -> bytes:
    nibble = value.code >> 4
    if nibble in LENGTH_WIDTHS:
        return bytes((value.code,)) + sized(value.content, LENGTH_WIDTHS[nibble])
    if len(value.content) != FIXED_WIDTHS.get(nibble):
        message = f"type {value.code:#04x} has no values of {len(value.content)} bytes"
        raise LocalFramingError(message)
    return bytes((value.code,)) + value.content


def _fixed(width: int) -> Writer:
    def fixed(value: bytes) -> bytes:
        if len(value) != width:
            message = f"{len(value)} bytes for a type of {width}"
            raise LocalFramingError(message)
        return bytes(value)

    return fixed


def _text(width: int, charset: str) -> Writer:
    pack = _LENGTHS[width].pack

    def text(value: str) -> bytes:
        content = value.encode(charset)
        return pack(len(content)) + content

    return text


def _binary(width: int) -> Writer:
    return lambda content: sized(content, width)


def _ranges(layout: str) -> Writer:
    pack = struct.Struct(layout).pack
    return lambda ranges: sized(b"".join([pack(*pair) for pair in ranges]), 2)


BY_KIND.update({kind: struct.Struct(layout).pack for kind, layout in NUMBERS.items()})
BY_KIND.update(
    {
        "uint8": struct.Struct(">B").pack,
        "boolean": lambda value: b"\x01" if value else b"\x00",
        "char": lambda value: _fixed(1)(value.encode("latin-1")),
        "char-utf32": lambda value: _fixed(4)(value.encode("utf-32-be")),
        "uuid": lambda value: value.bytes,
        "void": lambda _value: b"",
        "bit": lambda _value: b"",
        "map": _map,
        "list": _list,
        "array": _array,
        "struct32": _struct32,
        "byte-ranges": _ranges(">QQ"),
        "sequence-set": _ranges(">II"),
    }
)
for _kind, _rows in ENCODINGS.items():
    if _kind in BY_KIND or not _rows:
        continue
    _, _category, _width = _rows[0]
    if _kind.startswith("str"):
        BY_KIND[_kind] = _text(_width, CHARSETS[_kind.partition("-")[2]])
    elif _category == "fixed":
        BY_KIND[_kind] = _fixed(_width)
    else:
        BY_KIND[_kind] = _binary(_width)


def _coded(kind: str) -> tuple[bytes, Writer]:
    return bytes((ENCODINGS[kind][0][0],)), BY_KIND[kind]


_UINT64 = _coded("uint64")
BY_CLASS.update({cls: _coded(kind) for kind, cls in CLASSES.items()})
BY_CLASS.update(
    {
        type(None): _coded("void"),
        bool: _coded("boolean"),
        int: _coded("int64"),
        float: _coded("double"),
        str: _coded("str16"),
        bytes: _coded("vbin32"),
        UUID: _coded("uuid"),
        dict: _coded("map"),
        list: _coded("list"),
        TypedArray: _coded("array"),
    }
)
_STRUCT32 = _coded("struct32")[0]
BY_CLASS[UnknownStruct] = (_STRUCT32, _unknown_struct)
BY_CLASS[UnknownValue] = (b"", _unknown_value)
