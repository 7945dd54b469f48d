"""Encode and decode controls, commands and structs by the generated tables. Pure.

     method    class, code (1 byte each); a command: 1, then flags of which the lowest is sync;
               flags (2 bytes), then the fields that are there
     struct    its size, if it has a size; its code, if it has one; flags; fields

In the flags, the field that comes first is the lowest bit of the first byte. A bit has no other
place than there. Flags without a field are reserved, and zero.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Any, NamedTuple, get_args

from broker_shim.amqp_0_10.commands import COMMANDS, Command
from broker_shim.amqp_0_10.controls import CONTROLS, Control
from broker_shim.amqp_0_10.definitions import ExecutionErrorCode
from broker_shim.amqp_0_10.structs import STRUCTS as STRUCT_CLASSES
from broker_shim.amqp_0_10.structs import SessionHeader, Struct
from broker_shim.framing.decoder import (
    MAX_DEPTH,
    RAW,
    STRUCTS,
    UNREADABLE,
    Reader,
    span,
    unreadable,
)
from broker_shim.framing.encoder import BY_CLASS, BY_KIND, UNWRITABLE, Writer, sized
from broker_shim.framing.errors import (
    LocalFramingError,
    MalformedValue,
    RemoteCommandError,
    RemoteFramingError,
)
from broker_shim.framing.values import UnknownStruct

Method = Control | Command

_MOST_PLANS = 64
"""Sets of fields of one class that are remembered; nobody uses more, but a peer may."""


class _ReadPlan(NamedTuple):
    """Plan to read an instance of a class that has certain fields.

    Attributes:
        start: What each field is before anything is read; bits are told by the flags alone.
        readers: Index and reader of each field that follows.
        missing: Index from 1 of a field that had to be said; 0 if none is missing.
    """

    start: list[Any]
    readers: tuple[tuple[int, Reader], ...]
    missing: int


class _FieldLayout:
    """Layout by which a class is read and written."""

    def __init__(self, cls: type[Method] | type[Struct]) -> None:
        self.cls, self._pack = cls, cls.PACK
        self._plans: dict[int, _ReadPlan] = {}
        rows = zip(cls.FIELDS, _getters(cls), strict=True)
        self._writers = tuple(
            (_flag(index, cls.PACK), get, default, None if kind == "bit" else _writer(kind))
            for index, ((_, kind, _, default), get) in enumerate(rows)
        )

    def read(self, encoded: bytes, at: int, depth: int) -> tuple[Any, int]:
        """An instance from its flags and fields, and where it ends."""
        pack = self._pack
        flags = int.from_bytes(encoded[at : at + pack], "big") if pack else -1
        at += pack
        plan = self._plans.get(flags)
        if plan is None:
            plan = self._plan(flags)
            if len(self._plans) < _MOST_PLANS:
                self._plans[flags] = plan
        if plan.missing:
            name = self.cls.FIELDS[plan.missing - 1][0]
            message = f"{self.cls.NAME} without {name}"
            raise MissingField(message, plan.missing)
        values = plan.start.copy()
        for index, reader in plan.readers:
            values[index], at = reader(encoded, at, depth)
        return self.cls(*values), at

    def write(self, value: Any) -> bytes:
        """The flags and fields of an instance."""
        flags, parts = 0, [b""]
        for flag, get, default, writer in self._writers:
            field = get(value)
            if writer is None:
                flags |= flag if field else 0
            elif field is not None:
                flags |= flag
                parts.append(writer(field))
            elif default is not None:
                message = f"{self.cls.NAME} with None where the default is {default!r}"
                raise LocalFramingError(message)
        if self.cls.PACK:
            parts[0] = flags.to_bytes(self.cls.PACK, "big")
        return b"".join(parts)

    def _plan(self, flags: int) -> _ReadPlan:
        start: list[Any] = []
        readers: list[tuple[int, Reader]] = []
        missing = known = 0
        pack, is_method = self.cls.PACK, self.cls not in _STRUCTS
        for index, (_, kind, is_mandatory, default) in enumerate(self.cls.FIELDS):
            flag = _flag(index, pack)
            known |= flag
            is_there = bool(flags & flag) or not pack
            nothing = _nothing(kind) if is_mandatory and is_method else None
            start.append(is_there if kind == "bit" else nothing if default is None else default)
            if is_there and kind != "bit":
                readers.append((index, _reader(kind)))
            elif is_mandatory and start[-1] is None and is_method and not missing:
                missing = index + 1  # a struct that says nothing is an answer, too: "not there"
        if pack and flags & ~known:
            message = f"{self.cls.NAME} with reserved flags, {flags & ~known:#x}"
            raise MalformedValue(message)
        return _ReadPlan(start, tuple(readers), missing)


def _nothing(kind: str) -> Any:
    """Return the value of a required field that is missing: real clients leave out an empty or a 0.

    None if there is nothing that it could be.
    """
    if kind.startswith("str"):
        return ""
    if kind.startswith("vbin"):
        return b""
    if kind in {"array", "sequence-set", "byte-ranges"}:
        return ()
    return None if kind.startswith("composite:") else 0


class MissingField(MalformedValue):
    """A method or struct lacks a field that it must have.

    Attributes:
        field_index: Number of the field, from 1.
    """

    def __init__(self, message: str, field_index: int) -> None:
        super().__init__(message)
        self.field_index = field_index


def read_control(payload: bytes) -> Control:
    """The control of a segment.

    Raises:
        RemoteFramingError: It is none, or not a good one.
    """
    code = int.from_bytes(payload[:2], "big")
    cls = CONTROLS.get(code)
    if cls is None or len(payload) < 2:
        raise RemoteFramingError(f"no such control: class {code >> 8}, code {code & 0xFF}")
    try:
        control: Control = _whole(cls, payload, 2)
    except UNREADABLE as reason:
        raise RemoteFramingError(f"{cls.NAME}: {unreadable(reason)}") from reason
    return control


def read_command(payload: bytes) -> tuple[Command, bool]:
    """The command of a segment, and whether its sender waits for its completion.

    Raises:
        RemoteCommandError: It is none, or not a good one.
    """
    code = int.from_bytes(payload[:2], "big")
    cls = COMMANDS.get(code)
    if cls is None or len(payload) < 2:
        text = f"no such command: class {code >> 8}, code {code & 0xFF}"
        raise RemoteCommandError(ExecutionErrorCode.COMMAND_INVALID, text, code)
    try:
        if payload[2] != _SESSION_HEADER_BYTES or payload[3] > 1:
            message = f"a session header of {payload[2]} bytes with flags {payload[3]:#x}"
            raise MalformedValue(message)
        command: Command = _whole(cls, payload, 4)
    except UNREADABLE as reason:
        index = reason.field_index if isinstance(reason, MissingField) else 0
        text = f"{cls.NAME}: {unreadable(reason)}"
        refusal = ExecutionErrorCode.ILLEGAL_ARGUMENT
        raise RemoteCommandError(refusal, text, code, index) from reason
    for index, get, allowed in _CHOICES[cls]:
        value = get(command)
        if value is not None and value not in allowed:
            text = f"{cls.NAME}: {cls.FIELDS[index][0]} cannot be {value}"
            raise RemoteCommandError(ExecutionErrorCode.ILLEGAL_ARGUMENT, text, code, index + 1)
    return command, payload[3] == 1


def read_structs(payload: bytes) -> list[Struct | UnknownStruct]:
    """The structs of a header segment, each after its size and code.

    Raises:
        MalformedValue: They are none.
    """
    structs, at = [], 0
    try:
        read, end = RAW["struct32"], len(payload)
        while at < end:
            struct, at = read(payload, at, MAX_DEPTH)
            structs.append(struct)
    except UNREADABLE as reason:
        raise MalformedValue(unreadable(reason)) from reason
    return structs


def encoded_method(method: Method, *, sync: bool = False) -> bytes:
    """The segment of a control or command.

    Args:
        method: The control or command.
        sync: True if the receiver of a command is to tell soon that it is complete.

    Raises:
        LocalFramingError: A value does not fit its field.
    """
    cls = type(method)
    head = cls.CODE.to_bytes(2, "big")
    if cls in _COMMAND_CLASSES:
        head += b"\x01\x01" if sync else b"\x01\x00"
    return head + _fields(method)


def encoded_structs(structs: Iterable[Struct | UnknownStruct]) -> bytes:
    """The header segment of some structs.

    Raises:
        LocalFramingError: A value does not fit its field, or a struct has no code.
    """
    try:
        return b"".join([BY_KIND["struct32"](struct) for struct in structs])
    except UNWRITABLE as reason:
        message = f"a header with a value that does not fit: {reason}"
        raise LocalFramingError(message) from reason


def _fields(value: Method | Struct) -> bytes:
    try:
        return _LAYOUTS[type(value)].write(value)
    except UNWRITABLE as reason:
        message = f"{type(value).NAME} with a value that does not fit: {value!r:.200} ({reason})"
        raise LocalFramingError(message) from reason


def _whole(cls: type[Method], payload: bytes, at: int) -> Any:
    value, end = _LAYOUTS[cls].read(payload, at, MAX_DEPTH)
    if end != len(payload):
        raise MalformedValue("its fields do not fill it, or run past it")
    return value


def _flag(index: int, pack: int) -> int:
    """Return the flag of the field with this index.

    Fields 0 to 7 are in the first byte, lowest bit first.
    """
    return 1 << (8 * (pack - 1 - index // 8) + index % 8) if pack else 0


def _getters(cls: type[Method] | type[Struct]) -> list[attrgetter[Any]]:
    return [attrgetter(name) for name in cls.__dataclass_fields__ if name not in _FACTS]


_FACTS = frozenset(
    {"CODE", "NAME", "PACK", "SIZE", "RESULT", "HEADER", "BODY", "FIELDS", "CHOICES"}
)


def _reader(kind: str) -> Reader:
    if kind.startswith("composite:"):
        return _struct_reader(_BY_NAME[kind.removeprefix("composite:")])
    if kind == "array":
        return _items
    return RAW[kind]


def _items(encoded: bytes, at: int, depth: int) -> tuple[tuple[Any, ...], int]:
    """An array where a field has to be one: its items alone."""
    array, end = RAW["array"](encoded, at, depth)
    return array.items, end


def _struct_reader(cls: type[Struct]) -> Reader:
    """Return a reader for a field that is a struct: after its size, and its code if it has one."""
    width, code = cls.SIZE, cls.CODE

    def read(encoded: bytes, at: int, depth: int) -> tuple[Any, int]:
        if not width:
            return _LAYOUTS[cls].read(encoded, at, depth - 1)
        at, end = span(encoded, at, width)
        if code:
            if int.from_bytes(encoded[at : at + 2], "big") != code:
                message = f"another struct where {cls.NAME} has to stand"
                raise MalformedValue(message)
            at += 2
        value, at = _LAYOUTS[cls].read(encoded, at, depth - 1)
        if at != end:
            message = f"the fields of {cls.NAME} do not fill it, or run past it"
            raise MalformedValue(message)
        return value, end

    return read


def _writer(kind: str) -> Writer:
    if kind.startswith("composite:"):
        return _written_struct
    return BY_KIND[kind]


def _written_struct(value: Struct) -> bytes:
    cls = type(value)
    content = _LAYOUTS[cls].write(value)
    if cls.CODE:
        content = cls.CODE.to_bytes(2, "big") + content
    return sized(content, cls.SIZE) if cls.SIZE else content


_CHOICES = {
    cls: tuple((index, _getters(cls)[index], allowed) for index, allowed in cls.CHOICES)
    for cls in COMMANDS.values()
}
_SESSION_HEADER_BYTES = SessionHeader.PACK
_COMMAND_CLASSES = frozenset(COMMANDS.values())
_STRUCTS: frozenset[type] = frozenset(get_args(Struct))
_BY_NAME: dict[str, type[Struct]] = {cls.NAME: cls for cls in get_args(Struct)}
_LAYOUTS: dict[type, _FieldLayout] = {
    cls: _FieldLayout(cls) for cls in (*CONTROLS.values(), *COMMANDS.values(), *get_args(Struct))
}
for _code, _cls in STRUCT_CLASSES.items():
    STRUCTS[_code] = _LAYOUTS[_cls].read
    BY_CLASS[_cls] = (b"\xab", _written_struct)
