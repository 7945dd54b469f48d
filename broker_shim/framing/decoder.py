"""Decode one value from its bytes. Pure.

    in a map or list   the type's code, then the value; in an array the code is told once
    fixed types        so many bytes as their code says: 0x 1 byte, 1x 2, 2x 4, 3x 8, 4x 16, 5x 32,
                       6x 64, 7x 128, Cx 5, Dx 9, Fx none
    variable types     8x 1 byte of length, 9x 2, Ax 4, then the bytes
    map                4 bytes of size, 4 of count, then str8 key, code, value
    list               4 bytes of size, 4 of count, then code, value
    array              4 bytes of size, code, 4 of count, then values
    struct32           4 bytes of size, 2 of code, flags and fields (`methods`)

A reader is called as `reader(encoded, at, depth)` and returns the value and where it ends. It may
read past what is meant for it, never past `encoded`. Whoever knows where a value has to end
compares. Depth is counted, and what has more items than bytes is refused before its first item, so
a value of n bytes makes at most some 10 n objects.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any
from uuid import UUID

from broker_shim.amqp_0_10.primitives import CLASSES, ENCODINGS
from broker_shim.framing.errors import MalformedValue
from broker_shim.framing.values import TypedArray, UnknownStruct, UnknownValue

MAX_DEPTH = 32
"""Values within values."""

_MAX_EMPTY_ITEMS = 16
"""Items of an array that take no bytes."""

Reader = Callable[[bytes, int, int], tuple[Any, int]]

RAW: dict[str, Reader] = {}
"""Type → reader, numbers and text as Python's own classes; for fields of a known type."""

TYPED: dict[int, Reader] = {}
"""Code of a type → reader that keeps the type; for values of open type."""

STRUCTS: dict[int, Reader] = {}
"""Code of a struct → reader of its flags and fields; `methods` fills it."""

FIXED_WIDTHS = {0: 1, 1: 2, 2: 4, 3: 8, 4: 16, 5: 32, 6: 64, 7: 128, 0xC: 5, 0xD: 9, 0xF: 0}
"""High nibble of a type's code → width of its values."""

LENGTH_WIDTHS = {8: 1, 9: 2, 0xA: 4}
"""High nibble of a type's code → width of the length of its values."""

UNREADABLE = (IndexError, KeyError, struct.error, UnicodeDecodeError, MalformedValue, ValueError)
"""What readers raise for bytes that are cut short, unknown or not text."""

_LENGTHS = {1: struct.Struct(">B"), 2: struct.Struct(">H"), 4: struct.Struct(">I")}
_PAIR = struct.Struct(">II")


def unreadable(reason: Exception) -> str:
    """Describe a decoding error in words for the peer."""
    if isinstance(reason, MalformedValue):
        return str(reason)
    if isinstance(reason, UnicodeDecodeError):
        return f"text that is not {reason.encoding}"
    if isinstance(reason, KeyError):
        return f"no such type: {reason.args[0]!r}"
    return "a value is cut short"


def span(encoded: bytes, at: int, width: int) -> tuple[int, int]:
    """Return the begin and end of a variable value's bytes; their length is at `at`."""
    first = at + width
    end: int = first + _LENGTHS[width].unpack_from(encoded, at)[0]
    if end > len(encoded):
        raise MalformedValue("a value ends after its bytes do")
    return first, end


def _any(encoded: bytes, at: int, depth: int) -> tuple[Any, int]:
    code = encoded[at]
    reader = TYPED.get(code)
    return _unknown(encoded, at + 1, code) if reader is None else reader(encoded, at + 1, depth)


def _unknown(encoded: bytes, at: int, code: int) -> tuple[UnknownValue, int]:
    nibble = code >> 4
    if nibble in LENGTH_WIDTHS:
        first, end = span(encoded, at, LENGTH_WIDTHS[nibble])
    else:
        first, end = at, at + FIXED_WIDTHS[nibble]
        if end > len(encoded):
            raise MalformedValue("a value ends after its bytes do")
    return UnknownValue(code, encoded[first:end]), end


def _counted(encoded: bytes, at: int, depth: int, least: int) -> tuple[int, int, int]:
    """Read the head of a map or list: number of items, start of the first and end of the last."""
    if not depth:
        message = f"values nested deeper than {MAX_DEPTH}"
        raise MalformedValue(message)
    first, end = span(encoded, at, 4)
    if first == end:  # as some write what is empty
        return 0, first, end
    (count,) = _LENGTHS[4].unpack_from(encoded, first)
    first += 4
    if count * least > end - first:
        message = f"{count} items in {end - first} bytes"
        raise MalformedValue(message)
    return count, first, end


def _filled(at: int, end: int) -> int:
    if at != end:
        raise MalformedValue("the items of a map, list or array do not fill it, or run past it")
    return end


def _map(encoded: bytes, at: int, depth: int) -> tuple[dict[str, Any], int]:
    count, at, end = _counted(encoded, at, depth, 2)
    entries: dict[str, Any] = {}
    for _ in range(count):
        first = at + 1
        at = first + encoded[at]
        key = str(encoded[first:at], "utf-8")
        entries[key], at = _any(encoded, at, depth - 1)
    if len(entries) != count:
        raise MalformedValue("a map with one key twice")
    return entries, _filled(at, end)


def _list(encoded: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    count, at, end = _counted(encoded, at, depth, 1)
    items = []
    for _ in range(count):
        value, at = _any(encoded, at, depth - 1)
        items.append(value)
    return items, _filled(at, end)


def _array(encoded: bytes, at: int, depth: int) -> tuple[TypedArray, int]:
    if not depth:
        message = f"values nested deeper than {MAX_DEPTH}"
        raise MalformedValue(message)
    first, end = span(encoded, at, 4)
    if first == end:
        return TypedArray("void", ()), end
    kind = KIND_OF.get(encoded[first])
    if kind is None:
        message = f"an array of an unknown type, {encoded[first]:#04x}"
        raise MalformedValue(message)
    (count,) = _LENGTHS[4].unpack_from(encoded, first + 1)
    at = first + 5
    if count > max(end - at, _MAX_EMPTY_ITEMS):
        message = f"an array of {count} items in {end - at} bytes"
        raise MalformedValue(message)
    reader, items = RAW[kind], []
    for _ in range(count):
        value, at = reader(encoded, at, depth - 1)
        items.append(value)
    return TypedArray(kind, tuple(items)), _filled(at, end)


def _struct32(encoded: bytes, at: int, depth: int) -> tuple[Any, int]:
    if not depth:
        message = f"values nested deeper than {MAX_DEPTH}"
        raise MalformedValue(message)
    first, end = span(encoded, at, 4)
    code = encoded[first] << 8 | encoded[first + 1]
    reader = STRUCTS.get(code)
    if reader is None:
        if end < first + 2:
            raise MalformedValue("a struct without a code")
        return UnknownStruct(code, encoded[first + 2 : end]), end
    value, at = reader(encoded, first + 2, depth - 1)
    if at != end:
        message = f"the fields of {type(value).NAME} do not fill it, or run past it"
        raise MalformedValue(message)
    return value, end


def _number(layout: str) -> Reader:
    unpack_from, size = struct.Struct(layout).unpack_from, struct.calcsize(layout)

    def number(encoded: bytes, at: int, _depth: int) -> tuple[Any, int]:
        return unpack_from(encoded, at)[0], at + size

    return number


def _byte(encoded: bytes, at: int, _depth: int) -> tuple[int, int]:
    return encoded[at], at + 1


def _boolean(encoded: bytes, at: int, _depth: int) -> tuple[bool, int]:
    if encoded[at] > 1:
        message = f"a boolean that is {encoded[at]:#04x}"
        raise MalformedValue(message)
    return encoded[at] == 1, at + 1


def _fixed(width: int, convert: Callable[[bytes], Any] | None = None) -> Reader:
    def fixed(encoded: bytes, at: int, _depth: int) -> tuple[Any, int]:
        content = encoded[at : at + width]
        if len(content) != width:
            raise MalformedValue("a value ends after its bytes do")
        return (content if convert is None else convert(content)), at + width

    return fixed


def _variable(width: int, charset: str | None) -> Reader:
    def variable(encoded: bytes, at: int, _depth: int) -> tuple[Any, int]:
        first, end = span(encoded, at, width)
        content = encoded[first:end]
        return (content if charset is None else str(content, charset)), end

    return variable


def _short_text(encoded: bytes, at: int, _depth: int) -> tuple[str, int]:
    """A str8, as most fields of text are: the short way."""
    first = at + 1
    end = first + encoded[at]
    if end > len(encoded):
        raise MalformedValue("a value ends after its bytes do")
    return str(encoded[first:end], "utf-8"), end


def _ranges(layout: str) -> Reader:
    pairs, size = struct.Struct(layout), struct.calcsize(layout)

    def ranges(encoded: bytes, at: int, _depth: int) -> tuple[Any, int]:
        first, end = span(encoded, at, 2)
        if (end - first) % size:
            raise MalformedValue("a set of ranges with half a range")
        return tuple(pairs.iter_unpack(encoded[first:end])), end

    return ranges


CHARSETS = {"latin": "latin-1", "utf16": "utf-16-be", "": "utf-8"}
"""What follows the width in the name of a type of text → its encoding in Python's words."""

NUMBERS = {
    "int8": ">b",
    "int16": ">h",
    "uint16": ">H",
    "int32": ">i",
    "uint32": ">I",
    "int64": ">q",
    "uint64": ">Q",
    "float": ">f",
    "double": ">d",
    "datetime": ">Q",
    "sequence-no": ">I",
}
"""Type → how `struct` lays it out."""

RAW.update({kind: _number(layout) for kind, layout in NUMBERS.items()})
RAW.update(
    {
        "uint8": _byte,
        "boolean": _boolean,
        "char": _fixed(1, lambda content: str(content, "latin-1")),
        "char-utf32": _fixed(4, lambda content: str(content, "utf-32-be")),
        "uuid": _fixed(16, lambda content: UUID(bytes=content)),
        "void": lambda _encoded, at, _depth: (None, at),
        "bit": lambda _encoded, at, _depth: (True, at),
        "str8": _short_text,
        "map": _map,
        "list": _list,
        "array": _array,
        "struct32": _struct32,
        "byte-ranges": _ranges(">QQ"),
        "sequence-set": _ranges(">II"),
    }
)
KIND_OF = {rows[0][0]: kind for kind, rows in ENCODINGS.items() if rows}
"""Code of a type → its name."""


def _typed(keep: type, raw: Reader) -> Reader:
    def typed(encoded: bytes, at: int, depth: int) -> tuple[Any, int]:
        value, end = raw(encoded, at, depth)
        return keep(value), end

    return typed


for _code, _kind in KIND_OF.items():
    _, _category, _width = ENCODINGS[_kind][0]
    if _kind not in RAW:
        is_text = _kind.startswith("str")
        _charset = CHARSETS[_kind.partition("-")[2]] if is_text else None
        RAW[_kind] = _fixed(_width) if _category == "fixed" else _variable(_width, _charset)
    _keep = CLASSES.get(_kind)
    TYPED[_code] = RAW[_kind] if _keep is None else _typed(_keep, RAW[_kind])
