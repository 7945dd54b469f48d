"""Values that no class of Python's own stands for.

A value of open type (in a map, a list) is None, bool, int (int64), float (double), str (str16),
bytes (vbin32), UUID, list, dict, a struct that has a code, one of the classes of
`amqp_0_10.primitives`, or one of those here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True, slots=True)
class TypedArray:
    """Values of one type, told once.

    Attributes:
        kind: The primitive's name, as "str16".
        items: The values, of Python's own classes: the kind tells their type.
    """

    kind: str
    items: tuple[Any, ...]


class UnknownValue(NamedTuple):
    """A value of a type that the specification does not know; the type tells how long it is.

    Attributes:
        code: The type's code.
        content: The bytes of the value, without those that tell the length.
    """

    code: int
    content: bytes


class UnknownStruct(NamedTuple):
    """A struct that the specification does not know.

    Attributes:
        code: Class and code of it (class << 8 | code).
        content: Its flags and fields.
    """

    code: int
    content: bytes
