"""Values that no class of Python's own stands for.

A decoded value of open type (in a map, an address, a filter) is None, bool, int (long), float
(double), str, bytes, UUID, list, dict, one of the classes of `amqp_1_0.primitives`, a composite,
or one of the two dataclasses here. Keys of a map that Python takes for equal (1 and 1.0, a string
and a symbol of the same text) are one key.

The scanner, which looks for single values in a message and decodes nothing else, answers with a
`Scalar`: all numbers are int and float, text keeps apart `Symbol` and str, times are `Timestamp`,
and whatever is no scalar is `Opaque`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID


class Opaque(bytes):
    """The encoding of a value that is not decoded: a compound, a decimal, a described one."""

    __slots__ = ()


Scalar = None | bool | int | float | str | bytes | UUID | Opaque


@dataclass(frozen=True, slots=True)
class Described:
    """A value with a descriptor that the specification does not know.

    Attributes:
        descriptor: What it is: a `Symbol` or a `ULong`, as a rule.
        value: The value described.
    """

    descriptor: Any
    value: Any


@dataclass(frozen=True, slots=True)
class Array:
    """Values of one type, told once.

    Attributes:
        kind: The primitive's name, as "symbol".
        items: The values, of Python's own classes: the kind tells their type.
        descriptor: What describes each item; None if nothing does.
    """

    kind: str
    items: tuple[Any, ...]
    descriptor: Any = None
