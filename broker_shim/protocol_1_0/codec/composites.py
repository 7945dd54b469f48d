"""Described lists (performatives, termini, outcomes, sections) ↔ bytes, by the generated table.

00 53 code · list of the fields in order; fields at the end that say nothing are left out

A default that is not at the end is said, too: not every peer assumes it.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any, NamedTuple

from broker_shim.amqp_1_0.composites import COMPOSITES, PROVIDERS, Composite
from broker_shim.amqp_1_0.definitions import AmqpError
from broker_shim.amqp_1_0.primitives import ENCODINGS
from broker_shim.protocol_1_0.codec.decoder import (
    KNOWN,
    LISTS,
    MAX_DEPTH,
    RAW,
    TYPED,
    UNREADABLE,
    Reader,
    compound_at,
    items_at,
    unreadable,
)
from broker_shim.protocol_1_0.codec.encoder import (
    BY_CLASS,
    BY_KIND,
    NULL,
    UNWRITABLE,
    Writer,
    described,
    listed,
    written,
)
from broker_shim.protocol_1_0.codec.errors import DecodeError, InvalidCommand
from broker_shim.protocol_1_0.codec.values import Array

_BY_NAME = {kind.NAME: kind for kind in COMPOSITES.values()}


class _Layout(NamedTuple):
    """Layout by which a class is read and written.

    Attributes:
        readers: For each field, constructor → reader.
        defaults: What a field is that was not said.
        required: How many fields must be there at least.
        fields: For each field: how to get it, its writer, its default, whether it is mandatory.
    """

    readers: tuple[dict[int, Reader], ...]
    defaults: tuple[Any, ...]
    required: int
    fields: tuple[tuple[attrgetter[Any], Writer, Any, bool], ...]


def read_performative(encoded: bytes, at: int, end: int) -> tuple[Composite, int]:
    """The performative at the start of a frame's body, and where its payload starts.

    Args:
        encoded: Bytes that hold the frame, perhaps more.
        at: Where the body starts.
        end: Where the frame ends.

    Raises:
        DecodeError: It is not a composite of the specification, or not a good one.
    """
    try:
        if encoded[at] != 0:
            raise DecodeError("a frame does not start with a performative")
        if encoded[at + 1] == 0x53 and (known := KNOWN.get(encoded[at + 2])) is not None:
            value, at = known(encoded, at + 3, MAX_DEPTH)  # as nearly all are: the short way
        else:
            value, at = TYPED[0](encoded, at + 1, MAX_DEPTH)
    except UNREADABLE as reason:
        raise unreadable(reason) from reason
    if at > end:
        raise DecodeError("a performative runs past its frame")
    if type(value) not in _LAYOUTS:
        raise DecodeError("a frame with something else than a performative")
    return value, at


def encoded_composite(value: Composite) -> bytes:
    """All bytes of a composite.

    Raises:
        InvalidCommand: A mandatory field is missing; a value does not fit its field.
    """
    try:
        return _written(value)
    except UNWRITABLE as reason:
        message = f"{value.NAME} with a value that does not fit: {value!r:.200} ({reason})"
        raise InvalidCommand(message) from reason


def _written(value: Composite) -> bytes:
    items: list[bytes] = []
    field_count = 0
    for get, writer, default, is_mandatory in _LAYOUTS[type(value)].fields:
        field = get(value)
        if field is None and is_mandatory:
            message = f"{value.NAME} without a mandatory field"
            raise TypeError(message)
        items.append(NULL if field is None else writer(field))
        if field is not None and (field != default or is_mandatory):
            field_count = len(items)
    return described(value.CODE, listed(items[:field_count]))


def said_fields(cls: type[Composite], encoded: bytes, at: int) -> list[Any]:
    """The fields of the composite whose list is at `at`, as far as they are said; null is None.

    Raises:
        DecodeError: It is not a good one.
    """
    try:
        fields: list[Any] = _SAID[cls](encoded, at, MAX_DEPTH)[0]
    except UNREADABLE as reason:
        raise unreadable(reason) from reason
    return fields


def _reader(cls: type[Composite], defaults: tuple[Any, ...], *, is_whole: bool) -> Reader:
    """Make a reader of the fields after a descriptor; the fields stay a list unless `is_whole`.

    Args:
        cls: The composite that it is.
        defaults: What a field is that is null.
        is_whole: True to make the composite of the fields, which adds those left out at the end.
    """
    layout, choices = _LAYOUTS[cls], cls.CHOICES
    fields = tuple(zip(layout.readers, defaults, strict=True))
    least, most = layout.required, len(fields)

    def read(encoded: bytes, at: int, depth: int) -> tuple[Any, int]:
        if encoded[at] == 0xC0:  # as nearly all are: the short way
            count, at, end = compound_at(encoded, at + 1, 1, depth)
        else:
            count, at, end = items_at(encoded, at, LISTS, depth)
        if not least <= count <= most:
            message = f"{cls.NAME} with {count} fields"
            raise DecodeError(message)
        depth -= 1
        values: list[Any] = []
        for readers, default in fields[:count]:
            reader = readers.get(encoded[at])
            if reader is None:
                name = cls.FIELDS[len(values)][0]
                message = f"{cls.NAME}: {name} has a value of the wrong type, 0x{encoded[at]:02x}"
                raise DecodeError(message)
            value, at = reader(encoded, at + 1, depth)
            values.append(default if value is None else value)
        if at != end:
            message = f"the fields of {cls.NAME} do not fill it, or run past it"
            raise DecodeError(message)
        if choices:
            _check_choices(cls, values)
        return cls(*values) if is_whole else values, end

    return read


def _check_choices(cls: type[Composite], values: list[Any]) -> None:
    for index, allowed in cls.CHOICES:
        if index < len(values) and values[index] not in allowed and values[index] is not None:
            message = f"{cls.NAME}: {cls.FIELDS[index][0]} cannot be {values[index]!r:.40}"
            raise DecodeError(message, AmqpError.INVALID_FIELD)


def _layout(cls: type[Composite]) -> _Layout:
    return _Layout(
        readers=tuple(
            _field_readers(kind) if is_mandatory else {0x40: RAW[0x40], **_field_readers(kind)}
            for _, kind, is_mandatory, _ in cls.FIELDS
        ),
        defaults=tuple(default for _, _, _, default in cls.FIELDS),
        required=max((i + 1 for i, field in enumerate(cls.FIELDS) if field[2]), default=0),
        fields=tuple(
            (attrgetter(name.replace("-", "_")), _field_writer(kind), default, is_mandatory)
            for name, kind, is_mandatory, default in cls.FIELDS
        ),
    )


def _field_readers(kind: str) -> dict[int, Reader]:
    if kind == "any":
        return {code: reader for code, reader in TYPED.items() if code != 0x40}
    if kind.startswith("of:"):
        names = PROVIDERS[kind.removeprefix("of:")]
        readers = {code: TYPED[code] for name in names for code in _codes(name)}
        composites = tuple(_BY_NAME[name] for name in names if name in _BY_NAME)
        return readers | ({0: _described_as(composites)} if composites else {})
    if kind.startswith("composite:"):
        return {0: _described_as((_BY_NAME[kind.removeprefix("composite:")],))}
    if kind.endswith("*"):
        one = {code: _alone(RAW[code]) for code in _codes(kind[:-1])}
        return one | {code: _many(kind[:-1], RAW[code]) for code in _codes("array")}
    return {code: RAW[code] for code in _codes(kind)}


def _codes(kind: str) -> list[int]:
    return [code for code, _, _ in ENCODINGS.get(kind, ())]


def _described_as(classes: tuple[type[Composite], ...]) -> Reader:
    def read(encoded: bytes, at: int, depth: int) -> tuple[Any, int]:
        value, end = TYPED[0](encoded, at, depth)
        if not isinstance(value, classes):
            message = f"{type(value).__name__} where it cannot stand"
            raise DecodeError(message)
        return value, end

    return read


def _alone(reader: Reader) -> Reader:
    def read(encoded: bytes, at: int, depth: int) -> tuple[tuple[Any, ...], int]:
        value, end = reader(encoded, at, depth)
        return (value,), end

    return read


def _many(kind: str, reader: Reader) -> Reader:
    def read(encoded: bytes, at: int, depth: int) -> tuple[tuple[Any, ...], int]:
        array, end = reader(encoded, at, depth)
        if array.kind != kind or array.descriptor is not None:
            message = f"an array of {array.kind} where one of {kind} is expected"
            raise DecodeError(message)
        return array.items, end

    return read


def _field_writer(kind: str) -> Writer:
    if kind == "any" or kind.startswith(("of:", "composite:")):
        return written
    if kind.endswith("*"):
        return lambda items: written(Array(kind[:-1], tuple(items)))
    return BY_KIND[kind]


_LAYOUTS: dict[type[Composite], _Layout] = {cls: _layout(cls) for cls in COMPOSITES.values()}
_SAID = {
    cls: _reader(cls, (None,) * len(layout.defaults), is_whole=False)
    for cls, layout in _LAYOUTS.items()
}
for _cls in COMPOSITES.values():
    _whole = _reader(_cls, _LAYOUTS[_cls].defaults, is_whole=True)
    KNOWN[_cls.CODE] = KNOWN[_cls.DESCRIPTOR] = _whole
    BY_CLASS[_cls] = _written
