"""AMQP 0-10: what is written is read again, however it is cut; what is no AMQP is refused."""

from __future__ import annotations

import random
import struct
from dataclasses import fields
from functools import cache
from typing import Any, get_args
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from broker_shim.amqp_0_10.commands import COMMANDS, MessageTransfer
from broker_shim.amqp_0_10.controls import CONTROLS
from broker_shim.amqp_0_10.primitives import CLASSES, ENCODINGS
from broker_shim.amqp_0_10.structs import STRUCTS, MessageProperties, Struct
from broker_shim.framing.assembly import Assembly, MethodReader, frames_of
from broker_shim.framing.errors import RemoteCommandError, RemoteFramingError
from broker_shim.framing.frames import FIRST_FRAME, Frame, FrameReader
from broker_shim.framing.methods import (
    encoded_method,
    encoded_structs,
    read_command,
    read_control,
    read_structs,
)
from broker_shim.framing.order import FramingLimits
from broker_shim.framing.segments import BodySegment, HeaderSegment
from broker_shim.framing.values import TypedArray, UnknownStruct

FUZZED = 3_000

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_UNSIGNED = {
    "uint8": 8,
    "uint16": 16,
    "uint32": 32,
    "uint64": 64,
    "datetime": 64,
    "sequence-no": 32,
}
_SINGLE = st.floats(width=32, allow_nan=False)


def _of(kind: str) -> st.SearchStrategy[Any]:
    """Values of Python's own classes that a type can hold."""
    if kind in _BITS:
        return st.integers(-(1 << _BITS[kind] - 1), (1 << _BITS[kind] - 1) - 1)
    if kind in _UNSIGNED:
        return st.integers(0, (1 << _UNSIGNED[kind]) - 1)
    if kind.startswith("str"):
        alphabet = st.characters(codec="latin-1" if kind.endswith("latin") else "utf-8")
        return st.text(alphabet, max_size=20)
    if kind.startswith("vbin"):
        return st.binary(max_size=20)
    if kind.startswith(("bin", "dec")):
        width = ENCODINGS[kind][0][2]
        return st.binary(min_size=width, max_size=width)
    special: dict[str, st.SearchStrategy[Any]] = {
        "boolean": st.booleans(),
        "bit": st.just(True),  # the value
        "void": st.none(),
        "float": _SINGLE,
        "double": st.floats(allow_nan=False),
        "uuid": st.uuids(),
        "char": st.characters(codec="latin-1"),
        "char-utf32": st.characters(codec="utf-8"),
    }
    return special[kind]


_SCALARS = [kind for kind, rows in ENCODINGS.items() if rows and kind not in
            {"map", "list", "array", "struct32"}]  # fmt: skip


def _kept(kind: str) -> st.SearchStrategy[Any]:
    keep = CLASSES.get(kind)
    return _of(kind) if keep is None else _of(kind).map(keep)


SCALARS = st.sampled_from(_SCALARS).flatmap(_kept)
ARRAYS = st.sampled_from([kind for kind in _SCALARS if kind not in {"void", "bit"}]).flatmap(
    lambda kind: st.builds(TypedArray, st.just(kind), st.lists(_of(kind), max_size=3).map(tuple))
)
KEYS = st.text(st.characters(codec="utf-8"), max_size=8)
VALUES = st.recursive(
    SCALARS | ARRAYS | st.builds(UnknownStruct, st.just(0x7777), st.binary(max_size=5)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
MAPS = st.dictionaries(KEYS, VALUES, max_size=4)
SEQUENCES = st.lists(st.tuples(_of("uint32"), _of("uint32")), max_size=3).map(tuple)


def _field(kind: str) -> st.SearchStrategy[Any]:
    special: dict[str, st.SearchStrategy[Any]] = {
        "bit": st.booleans(),
        "map": MAPS,
        "array": st.lists(_of("str16"), max_size=3).map(tuple),
        "sequence-set": SEQUENCES,
        "byte-ranges": st.lists(st.tuples(_of("uint64"), _of("uint64")), max_size=2).map(tuple),
        "struct32": st.deferred(lambda: STRUCT_VALUES),
    }
    if kind.startswith("composite:"):
        name = kind.removeprefix("composite:")
        return _instances(next(cls for cls in get_args(Struct) if name == cls.NAME))
    return special[kind] if kind in special else _of(kind)


@cache
def _instances(cls: Any) -> st.SearchStrategy[Any]:
    """Instances that say any of their fields, and all that they must."""
    choices = {index: st.sampled_from(sorted(allowed)) for index, allowed in cls.CHOICES}
    arguments = {}
    for index, (row, field) in enumerate(zip(cls.FIELDS, fields(cls), strict=True)):
        _, kind, is_mandatory, default = row
        value = choices[index] if index in choices else _field(kind)
        is_needed = is_mandatory or default is not None
        arguments[field.name] = value if is_needed else st.none() | value
    return st.builds(cls, **arguments)


STRUCT_VALUES = st.sampled_from(sorted(STRUCTS)).flatmap(lambda code: _instances(STRUCTS[code]))
METHODS = {**CONTROLS, **COMMANDS}


@given(st.sampled_from(sorted(CONTROLS)).flatmap(lambda code: _instances(CONTROLS[code])))
def test_a_control_is_read_as_it_was_written(control: Any) -> None:
    assert read_control(encoded_method(control)) == control


@given(
    st.sampled_from(sorted(COMMANDS)).flatmap(lambda code: _instances(COMMANDS[code])),
    st.booleans(),
)
@settings(max_examples=300)
def test_a_command_is_read_as_it_was_written(command: Any, sync: bool) -> None:
    assert read_command(encoded_method(command, sync=sync)) == (command, sync)


@given(st.lists(STRUCT_VALUES, max_size=3))
def test_structs_are_read_as_they_were_written(structs: list[Any]) -> None:
    assert read_structs(encoded_structs(structs)) == structs


@given(MAPS)
@settings(max_examples=200)
def test_application_headers_keep_values_and_types(headers: dict[str, Any]) -> None:
    encoded = encoded_structs([MessageProperties(application_headers=headers)])
    (found,) = read_structs(encoded)
    assert isinstance(found, MessageProperties)
    assert _typed(found.application_headers) == _typed(headers)
    assert encoded_structs([found]) == encoded


def _typed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _typed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_typed(item) for item in value]
    return type(value), value


@given(
    st.lists(st.binary(max_size=9_000), min_size=1, max_size=3),
    st.sampled_from([4_096, 5_000, 65_535]),
    st.data(),
)
def test_a_stream_gives_the_same_assemblies_however_it_is_cut(
    bodies: list[bytes], max_frame_bytes: int, cuts: st.DataObject
) -> None:
    sent = [
        Assembly(
            channel,
            MessageTransfer(f"q{channel}", 1, 0),
            header=HeaderSegment.of(MessageProperties(content_length=len(body))),
            body=BodySegment(body),
        )
        for channel, body in enumerate(bodies)
    ]
    stream = b"".join(frame.encoded for each in sent for frame in frames_of(each, max_frame_bytes))
    reader, methods = FrameReader(max_frame_bytes), MethodReader(FramingLimits())
    found: list[tuple[Any, HeaderSegment, BodySegment]] = []
    while stream:
        size = cuts.draw(st.integers(1, len(stream)))
        for frame in reader.feed(stream[:size]):
            taken = methods.take(frame)
            if isinstance(taken, Assembly):
                found.append((taken.method, HeaderSegment(), BodySegment()))
            elif isinstance(taken, Frame):
                found[-1][taken.type - 1].add(taken)
        stream = stream[size:]
    assert reader.held_bytes == 0
    assert [(method, body.payload) for method, _, body in found] == [
        (each.method, each.body.payload) for each in sent if each.body is not None
    ]
    assert all(header.is_complete and body.is_complete for _, header, body in found)


def test_bytes_that_are_nearly_amqp_lead_to_the_protocols_errors_and_nothing_else() -> None:
    """Random changes of good streams, from one seed: the same every time."""
    chance = random.Random(10)  # no secret
    good = [_stream(chance) for _ in range(50)]
    refusals: set[int] = set()
    for _ in range(FUZZED):
        stream = bytearray(chance.choice(good))
        for _ in range(chance.randrange(4)):
            stream[chance.randrange(len(stream))] = chance.choice((0, 1, 0x7F, 0xFF, 0xA8))
        reader, methods = FrameReader(), MethodReader(FramingLimits(max_assembly_bytes=100_000))
        header = None
        try:
            for frame in reader.feed(bytes(stream)):
                taken = methods.take(frame)
                if isinstance(taken, Frame) and taken.type == 2:
                    header = HeaderSegment() if taken.flags & FIRST_FRAME else header
                    if header is not None and not header.is_complete:
                        header.add(taken)
                        _ = header.structs if header.is_complete else None
        except (RemoteFramingError, RemoteCommandError) as refused:
            refusals.add(int(refused.code))
        assert reader.held_bytes <= 65_535
    assert refusals == {501, 503, 531}


def _stream(chance: random.Random) -> bytes:
    headers = {
        "a": 1,
        "b": {"c": [UUID(int=7), "x", TypedArray("uint8", (1, 2))]},
        "d": struct.pack(">d", chance.random()),
    }
    header = HeaderSegment.of(MessageProperties(application_headers=headers))
    body = BodySegment(bytes(chance.randrange(20)))
    sent = Assembly(1, MessageTransfer("q", 1, 0), header=header, body=body)
    return b"".join(frame.encoded for frame in frames_of(sent))
