"""Decode one value from its bytes. Pure.

    value        constructor byte, then what its high nibble says:
                 4x nothing · 5x 1 byte · 6x 2 · 7x 4 · 8x 8 · 9x 16
                 Ax 1 byte length, Bx 4 bytes length, then the bytes
                 Cx 1 byte, Dx 4 bytes length of the rest; as wide a count; then the items
                 Ex 1 byte, Fx 4 bytes length of the rest; as wide a count; constructor; items
                 00 described: a descriptor (a value), then a value

A reader is called as `reader(encoded, at, depth)` with `at` after the constructor, and returns the
value and where it ends. It may read past what is meant for it, never past `encoded`: whoever knows
where a value has to end compares. All of them are reached through `read`, `read_performative`
(composites.py) and nothing else, which make one `DecodeError` of whatever is wrong.

What a hostile peer can cost: depth is counted (`MAX_DEPTH`). A list or a map with more items than
bytes is refused before its first item, and so is an array with more than `MAX_EMPTY_ITEMS` of
items that take no bytes. So a value of n bytes makes at most some 10 n objects.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from broker_shim.amqp_1_0.primitives import CLASSES, ENCODINGS
from broker_shim.protocol_1_0.codec.errors import DecodeError
from broker_shim.protocol_1_0.codec.values import Array, Described

MAX_DEPTH = 32
"""Values within values."""

MAX_EMPTY_ITEMS = 16
"""Items of an array that take no bytes."""

Reader = Callable[[bytes, int, int], tuple[Any, int]]

RAW: dict[int, Reader] = {}
"""Constructor → reader, numbers and text as Python's own classes; for fields of a known type."""

TYPED: dict[int, Reader] = {}
"""Constructor → reader that keeps the AMQP type; for values of open type."""

KNOWN: dict[int | str, Reader] = {}
"""Descriptor → reader of what follows the constructor of the list; composites.py fills it."""

SCALARS: dict[int, Reader] = {}
"""Constructor → reader of a `Scalar`; without those of values that are `Opaque` to the scanner."""

LISTS: Mapping[int, int] = {0xC0: 1, 0xD0: 4, 0x45: 0}
"""Constructor of a list → width of its length, and of its count."""

MAPS: Mapping[int, int] = {0xC1: 1, 0xD1: 4}
"""The same of a map."""

KIND_OF: dict[int, str] = {
    code: kind for kind, encodings in ENCODINGS.items() for code, _, _ in encodings
}


def read(encoded: bytes, at: int = 0, depth: int = MAX_DEPTH) -> tuple[Any, int]:
    """The value that starts at `at`, and where it ends.

    Raises:
        DecodeError: It is cut short, malformed or too deep.
    """
    try:
        value, end = read_typed(encoded, at, depth)
    except UNREADABLE as reason:
        raise unreadable(reason) from reason
    if end > len(encoded):
        raise DecodeError("a value ends after its bytes do")
    return value, end


UNREADABLE = (IndexError, KeyError, struct.error, UnicodeDecodeError)
"""What the readers raise for bytes that are cut short, unknown or not text."""


def unreadable(reason: Exception) -> DecodeError:
    """Describe a decoding error in the specification's words."""
    if isinstance(reason, KeyError):
        return DecodeError(f"no such constructor here: {reason.args[0]!r}")
    if isinstance(reason, UnicodeDecodeError):
        return DecodeError(f"text that is not {reason.encoding}")
    return DecodeError("a value is cut short")


def read_typed(encoded: bytes, at: int, depth: int) -> tuple[Any, int]:
    """Decode a value, as `read`, for other readers: it also raises what `UNREADABLE` lists."""
    return TYPED[encoded[at]](encoded, at + 1, depth)


def compound_at(encoded: bytes, at: int, width: int, depth: int) -> tuple[int, int, int]:
    """Read the head of a list, map or array: number of items, start of the first, end of all."""
    if not depth:
        message = f"values nested deeper than {MAX_DEPTH}"
        raise DecodeError(message)
    first = at + 2 * width
    if width == 1:
        size, count = encoded[at], encoded[at + 1]
    else:
        size, count = _PAIR.unpack_from(encoded, at)
    end = at + width + size
    if size < width or end > len(encoded):
        raise DecodeError("a list, map or array ends after its bytes do")
    return count, first, end


_PAIR = struct.Struct(">II")


def items_at(
    encoded: bytes, at: int, widths: Mapping[int, int], depth: int
) -> tuple[int, int, int]:
    """Read the head of the list or map whose constructor is at `at`, as `compound_at`.

    Args:
        encoded: Bytes that hold it.
        at: Where it begins.
        widths: What it has to be: `LISTS` or `MAPS`.
        depth: How deep values may still be nested.
    """
    width = widths.get(encoded[at])
    if width is None:
        kind = "map" if widths is MAPS else "list"
        message = f"a {kind} was expected at byte {at}, not 0x{encoded[at]:02x}"
        raise DecodeError(message)
    return compound_at(encoded, at + 1, width, depth) if width else (0, at + 1, at + 1)


def _items(encoded: bytes, at: int, width: int, depth: int) -> tuple[list[Any], int]:
    count, at, end = compound_at(encoded, at, width, depth)
    if count > end - at:
        message = f"{count} items in {end - at} bytes"
        raise DecodeError(message)
    items = []
    for _ in range(count):
        value, at = TYPED[encoded[at]](encoded, at + 1, depth - 1)
        items.append(value)
    if at != end:
        raise DecodeError("the items of a list or map do not fill it, or run past it")
    return items, end


def _map(encoded: bytes, at: int, width: int, depth: int) -> tuple[dict[Any, Any], int]:
    items, end = _items(encoded, at, width, depth)
    if len(items) % 2:
        raise DecodeError("a map with a key that has no value")
    try:
        value = dict(zip(items[::2], items[1::2], strict=True))
    except TypeError as reason:
        raise DecodeError("a map with a key that is itself a list or a map") from reason
    if 2 * len(value) != len(items):
        raise DecodeError("a map with one key twice")
    return value, end


def _array(encoded: bytes, at: int, width: int, depth: int) -> tuple[Array, int]:
    count, at, end = compound_at(encoded, at, width, depth)
    descriptor = None
    if encoded[at] == 0:
        descriptor, at = read_typed(encoded, at + 1, depth - 1)
    code = encoded[at]
    reader, at = RAW[code], at + 1
    if count > max(end - at, MAX_EMPTY_ITEMS):
        message = f"an array of {count} items in {end - at} bytes"
        raise DecodeError(message)
    items = []
    for _ in range(count):
        value, at = reader(encoded, at, depth - 1)
        items.append(value)
    if at != end:
        raise DecodeError("the items of an array do not fill it, or run past it")
    return Array(KIND_OF[code], tuple(items), descriptor), end


def _described(encoded: bytes, at: int, depth: int) -> tuple[Any, int]:
    if not depth:
        message = f"values nested deeper than {MAX_DEPTH}"
        raise DecodeError(message)
    descriptor, at = read_typed(encoded, at, depth - 1)
    known = KNOWN.get(descriptor) if isinstance(descriptor, int | str) else None
    if known is not None:
        return known(encoded, at, depth - 1)
    value, at = read_typed(encoded, at, depth - 1)
    return Described(descriptor, value), at


def _boolean(encoded: bytes, at: int, _depth: int) -> tuple[bool, int]:
    value = encoded[at]
    if value > 1:
        message = f"a boolean that is 0x{value:02x}"
        raise DecodeError(message)
    return value == 1, at + 1


def _byte(encoded: bytes, at: int, _depth: int) -> tuple[int, int]:
    """Half of all numbers on the wire: twice as quick as unpacking."""
    return encoded[at], at + 1


def _packed(layout: str) -> Reader:
    if layout == ">B":
        return _byte
    unpack_from, size = struct.Struct(layout).unpack_from, struct.calcsize(layout)

    def packed(encoded: bytes, at: int, _depth: int) -> tuple[Any, int]:
        return unpack_from(encoded, at)[0], at + size

    return packed


def _slice(width: int, convert: Callable[[bytes], Any]) -> Reader:
    def sliced(encoded: bytes, at: int, _depth: int) -> tuple[Any, int]:
        return convert(encoded[at : at + width]), at + width

    return sliced


def _variable(width: int, convert: Callable[[bytes], Any] | None) -> Reader:
    unpack_from = struct.Struct(">B" if width == 1 else ">I").unpack_from

    def variable(encoded: bytes, at: int, _depth: int) -> tuple[Any, int]:
        first = at + width
        end = first + unpack_from(encoded, at)[0]
        if end > len(encoded):
            raise DecodeError("text or binary ends after its bytes do")
        content = encoded[first:end]
        return (content if convert is None else convert(content)), end

    return variable


def _constant(value: Any) -> Reader:
    return lambda _encoded, at, _depth: (value, at)


def _of_width(read_compound: Callable[..., tuple[Any, int]], width: int) -> Reader:
    return lambda encoded, at, depth: read_compound(encoded, at, width, depth)


def _exactly(content: bytes, size: int) -> bytes:
    if len(content) != size:
        raise IndexError
    return content


_LAYOUTS = {"ubyte": "", "ushort": "", "uint": "", "ulong": "", "float": ">f", "double": ">d"}
_SIGNED = {1: ">b", 2: ">h", 4: ">i", 8: ">q"}
_UNSIGNED = {1: ">B", 2: ">H", 4: ">I", 8: ">Q"}
_TEXT = {"binary": None, "string": "utf-8", "symbol": "ascii"}
_SPECIAL: dict[str, Reader] = {
    "boolean": _boolean,
    "uuid": _slice(16, lambda content: UUID(bytes=_exactly(content, 16))),
    "char": _slice(4, lambda content: str(_exactly(content, 4), "utf-32-be")),
}
_COMPOUND = {"list": _items, "map": _map, "array": _array}


def _raw(kind: str, code: int, category: str, width: int) -> Reader:
    """The reader of one encoding of the table."""
    if category == "variable":
        charset = _TEXT[kind]
        return _variable(width, None if charset is None else lambda text: str(text, charset))
    if category != "fixed":
        return _of_width(_COMPOUND[kind], width)
    if width == 0:
        empty = {0x40: None, 0x41: True, 0x42: False, 0x43: 0, 0x44: 0}
        return _constant(empty[code]) if code in empty else lambda _e, at, _d: ([], at)
    if kind in _SPECIAL:
        return _SPECIAL[kind]
    if kind.startswith("decimal"):
        return _slice(width, lambda content: _exactly(content, width))
    return _packed(_LAYOUTS.get(kind, _SIGNED[width]) or _UNSIGNED[width])


def _typed(kind: str, raw: Reader) -> Reader:
    """Make a reader of the class that keeps the value's type."""
    keep = CLASSES.get(kind)
    if keep is None:
        return raw

    def typed(encoded: bytes, at: int, depth: int) -> tuple[Any, int]:
        value, end = raw(encoded, at, depth)
        return keep(value), end

    return typed


for _kind, _encodings in ENCODINGS.items():
    for _encoding in _encodings:
        RAW[_encoding[0]] = _raw(_kind, *_encoding)
        TYPED[_encoding[0]] = _typed(_kind, RAW[_encoding[0]])
        if _kind in {"symbol", "timestamp"}:
            SCALARS[_encoding[0]] = TYPED[_encoding[0]]
        elif _kind not in _COMPOUND and not _kind.startswith("decimal"):
            SCALARS[_encoding[0]] = RAW[_encoding[0]]
TYPED[0] = _described
