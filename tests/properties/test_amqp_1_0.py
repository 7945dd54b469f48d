"""AMQP 1.0: what was written is read back, and nothing a peer sends breaks our machine.

`HYPOTHESIS_PROFILE=soak` searches longer (`make soak`).
"""

from __future__ import annotations

import contextlib
import struct
import tracemalloc
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_shim.amqp_1_0 import primitives
from broker_shim.amqp_1_0.composites import (
    COMPOSITES,
    PROVIDERS,
    Accepted,
    Attach,
    Begin,
    Close,
    Composite,
    Detach,
    End,
    Error,
    Flow,
    Open,
    Rejected,
    Released,
    SaslInit,
    Source,
    Transfer,
)
from broker_shim.protocol_1_0 import events
from broker_shim.protocol_1_0.codec.composites import encoded_composite, read_performative
from broker_shim.protocol_1_0.codec.decoder import read
from broker_shim.protocol_1_0.codec.encoder import NULL, described, listed, write
from broker_shim.protocol_1_0.codec.errors import DecodeError, InvalidCommand
from broker_shim.protocol_1_0.codec.frames import (
    AMQP_HEADER,
    SASL_FRAME,
    SASL_HEADER,
    encoded_frame,
    transfer_frame,
)
from broker_shim.protocol_1_0.codec.values import Array, Described
from broker_shim.protocol_1_0.connection import ServerConnection
from broker_shim.protocol_1_0.peer_settings import Settings
from broker_shim.protocol_1_0.sasl.mechanisms import Plain
from tests.support.amqp.amqp_1_0 import attach, flow

ASCII = st.text(st.characters(max_codepoint=127), max_size=8)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
BINARY = st.binary(max_size=8) | st.binary(min_size=256, max_size=300)


def unsigned(bits: int) -> st.SearchStrategy[int]:
    return st.integers(0, 2**bits - 1) | st.sampled_from([0, 1, 255, 2**bits - 1])


def signed(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) | st.integers(-128, 127)


RAW: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "ubyte": unsigned(8),
    "ushort": unsigned(16),
    "uint": unsigned(32),
    "ulong": unsigned(64),
    "byte": signed(8),
    "short": signed(16),
    "int": signed(32),
    "long": signed(64),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "decimal32": st.binary(min_size=4, max_size=4),
    "decimal64": st.binary(min_size=8, max_size=8),
    "decimal128": st.binary(min_size=16, max_size=16),
    "char": st.characters(exclude_categories=["Cs"]),
    "timestamp": signed(64),
    "uuid": st.builds(UUID, bytes=st.binary(min_size=16, max_size=16)),
    "binary": BINARY,
    "string": TEXT,
    "symbol": ASCII,
}
"""Primitive → its values as Python's own."""


def typed(kind: str) -> st.SearchStrategy[Any]:
    names = {"ubyte": "UByte", "ushort": "UShort", "uint": "UInt", "ulong": "ULong"}
    cls = getattr(primitives, names.get(kind, kind.capitalize()), None)
    return RAW[kind] if cls is None else RAW[kind].map(cls)


SIMPLE = st.one_of([typed(kind) for kind in RAW])
ARRAYS = st.one_of(
    [st.builds(Array, st.just(kind), st.lists(RAW[kind], max_size=5).map(tuple)) for kind in RAW]
)
VALUES = st.recursive(
    SIMPLE | ARRAYS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(SIMPLE, inner, max_size=3)
        | st.builds(Described, typed("symbol") | st.just(primitives.ULong(999)), inner)
        | st.builds(
            Array, st.just("list"), st.lists(st.lists(inner, max_size=2), max_size=2).map(tuple)
        )
    ),
    max_leaves=8,
)


def of_kind(kind: str, depth: int) -> st.SearchStrategy[Any]:
    if kind == "any":
        return typed("binary") | typed("symbol")
    if kind.startswith("of:"):
        names = PROVIDERS[kind.removeprefix("of:")]
        return st.one_of([typed(each) if each in RAW else composite(each, depth) for each in names])
    if kind.startswith("composite:"):
        return composite(kind.removeprefix("composite:"), depth)
    if kind.endswith("*"):
        return st.lists(RAW[kind[:-1]], min_size=1, max_size=3).map(tuple)
    if kind == "map":
        return st.dictionaries(typed("symbol"), VALUES, max_size=2)
    return RAW[kind]


def composite(name: str, depth: int = 2) -> st.SearchStrategy[Any]:
    cls = next(each for each in COMPOSITES.values() if name == each.NAME)
    choices = dict(cls.CHOICES)
    fields = {}
    for index, (field, kind, is_mandatory, default) in enumerate(cls.FIELDS):
        if kind.startswith(("of:", "composite:")) and not depth and not is_mandatory:
            values = st.none()
        elif index in choices:
            values = st.sampled_from(sorted(choices[index]))
        else:
            values = of_kind(kind, depth - 1)
        if not is_mandatory:
            values = st.just(default) | values
        fields[field.replace("-", "_")] = values
    return st.builds(cls, **fields)


def identity(value: Any) -> Any:
    """A value with its class, as far down as there are values."""
    match value:
        case list() | tuple():
            return [identity(each) for each in value]
        case dict():
            return [(identity(key), identity(each)) for key, each in value.items()]
        case Array():
            return (value.kind, identity(value.items), identity(value.descriptor))
        case Described():
            return (identity(value.descriptor), identity(value.value))
        case _:
            return (type(value), value)


@pytest.mark.slow
@given(VALUES)
def test_a_value_comes_back_as_it_went_with_its_type(value: Any) -> None:
    encoded = write(value)
    found, end = read(encoded + b"\x40")
    assert end == len(encoded)
    assert identity(found) == identity(value)
    assert write(found) == encoded


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(each.NAME for each in COMPOSITES.values()))
def test_a_composite_comes_back_as_it_went(name: str) -> None:
    @given(composite(name))
    def check(value: Composite) -> None:
        encoded = encoded_composite(value)
        assert read_performative(encoded, 0, len(encoded)) == (value, len(encoded))

    check()


@given(st.binary(max_size=64))
def test_random_bytes_are_a_value_or_refused(encoded: bytes) -> None:
    with contextlib.suppress(DecodeError):
        value, end = read(encoded)
        assert 0 < end <= len(encoded)
        assert identity(read(write(value))[0]) == identity(value)


# ------------------------------------------------------------------------------ the whole machine

SETTINGS = Settings(
    "broker",
    max_frame_bytes=2_048,
    max_sessions=3,
    max_links=4,
    max_state_bytes=65_536,
    session_window=8,
    requires_sasl=False,
)
EARLIER = {b"": None, b"a": Accepted(), b"b": Released(), b"c" * 32: Rejected(Error("x" * 200))}
"""What every link holds unsettled when it is attached; some of it does not fit every frame."""

PLAIN = {"PLAIN": lambda: Plain(lambda user, password: (user, password) == ("a", "b"))}


class Responder:
    """A broker that answers everything, and looks after each step that all limits are kept."""

    def __init__(self) -> None:
        self.machine = ServerConnection(SETTINGS, PLAIN, now_s=0.0)
        self._tags = 0
        self._is_open = self._is_closed = False
        self._begun: dict[int, set[int]] = {}

    def feed(self, received: bytes) -> None:
        self.machine.receive_data(received, now_s=0.0)
        for event in self.machine.events():
            act = _ANSWERS.get(type(event))
            if act is not None:
                # What came in the same bytes may have ended what this event is about.
                with contextlib.suppress(InvalidCommand):
                    act(self, event)
        self._check_output(b"".join(self.machine.data_to_send(now_s=0.0)))
        assert len(self.machine.sessions) <= SETTINGS.max_sessions
        assert all(len(each.links) <= SETTINGS.max_links for each in self.machine.sessions)
        assert self.machine._channels.budget.used_bytes <= SETTINGS.max_state_bytes
        assert len(self.machine._decoder._gathered) <= SETTINGS.max_frame_bytes

    def _check_output(self, written: bytes) -> None:
        """Whole headers and frames, none larger than the peer takes, none before its time."""
        while written:
            if written.startswith(b"AMQP"):
                written = written[8:]
                continue
            size = int.from_bytes(written[:4], "big")
            assert 8 < size <= len(written)
            remote = self.machine.remote
            assert size <= (512 if remote is None else remote.max_frame_size)
            performative, _ = read_performative(written, 8, size)
            if written[5] != SASL_FRAME:
                self._check_order(performative, int.from_bytes(written[6:8], "big"))
            written = written[size:]

    def _check_order(self, performative: Composite, channel: int) -> None:
        assert not self._is_closed
        match performative:
            case Open():
                assert not self._is_open
                self._is_open = True
            case Close():
                self._is_closed = True
            case Begin():
                assert channel not in self._begun
                self._begun[channel] = set()
            case End():
                del self._begun[channel]
            case Attach(handle=handle):
                assert handle not in self._begun[channel]
                self._begun[channel].add(handle)
            case Detach(handle=handle):
                self._begun[channel].remove(handle)
            case Transfer(handle=handle) | Flow(handle=int(handle)):
                assert handle in self._begun[channel]
            case _:
                assert channel in self._begun
        assert self._is_open

    def opened(self, _event: events.ConnectionOpened) -> None:
        self.machine.open()

    def begun(self, event: events.SessionBegun) -> None:
        event.session.begin()

    def attached(self, event: events.LinkAttached) -> None:
        remote = event.link.remote
        event.link.attach(source=remote.source, target=remote.target, unsettled=EARLIER)
        if event.link.is_receiver:
            event.link.flow(3)  # type: ignore[union-attr]

    def flowed(self, event: events.FlowReceived) -> None:
        link: Any = event.link
        if link.is_receiver:
            return
        for tag, state in [*link.earlier.items()]:
            if state == Accepted():
                link.resume(tag, state=state).dispose(state)
            else:
                link.resume(tag, [b"x" * 3_000], waits=True)
        for _ in range(min(link.credit, 3)):
            self._tags += 1
            is_settled = link.snd_settle_mode == 1
            link.transfer(b"%d" % self._tags, [b"x" * 3_000], settled=is_settled)
        if link.is_draining:
            link.drained()

    def came(self, event: events.TransferPiece) -> None:
        if event.is_last:
            event.delivery.dispose(Accepted())
            event.delivery.link.flow(3)  # type: ignore[attr-defined]

    def disposed(self, event: events.DispositionReceived) -> None:
        for delivery in event.deliveries:
            delivery.dispose(event.state or Accepted())

    def detached(self, event: events.LinkDetached) -> None:
        if not event.link.is_over:
            event.link.detach(closed=event.is_closed)

    def ended(self, event: events.SessionEnded) -> None:
        event.session.end()

    def closed(self, _event: events.ConnectionClosed) -> None:
        self.machine.close()


_ANSWERS: dict[type, Callable[[Responder, Any], None]] = {
    events.ConnectionOpened: Responder.opened,
    events.SessionBegun: Responder.begun,
    events.LinkAttached: Responder.attached,
    events.FlowReceived: Responder.flowed,
    events.TransferPiece: Responder.came,
    events.DispositionReceived: Responder.disposed,
    events.LinkDetached: Responder.detached,
    events.SessionEnded: Responder.ended,
    events.ConnectionClosed: Responder.closed,
}

BEGIN = Begin(next_outgoing_id=0, incoming_window=50, outgoing_window=50)
TALK = [
    AMQP_HEADER.encoded(),
    encoded_frame(Open("c", max_frame_size=1_024)),
    encoded_frame(BEGIN),
    encoded_frame(attach(0)),
    encoded_frame(attach(1, is_receiver=True, unsettled={b"a": None})),
    encoded_frame(flow(1, 3)),
    transfer_frame(0, Transfer(0, 0, b"a", 0, more=True), 5) + b"hello",
    transfer_frame(0, Transfer(0), 5) + b"world",
]
SASL_TALK = [
    SASL_HEADER.encoded(),
    encoded_frame(SaslInit("PLAIN", b"\0a\0b"), kind=SASL_FRAME),
    *TALK,
]

SMALL = st.integers(0, 4)
FRAMES = st.one_of(
    [composite(name, 1) for name in PROVIDERS["frame"] if name not in {"open", "close"}]
    + [
        st.builds(
            lambda handle, role, unsettled, is_incomplete: attach(
                handle,
                is_receiver=role,
                unsettled=unsettled,
                incomplete_unsettled=is_incomplete,
            ),
            SMALL,
            st.booleans(),
            st.none() | st.just(EARLIER),
            st.booleans(),
        ),
        st.builds(flow, SMALL, SMALL, drain=st.booleans(), echo=st.booleans()),
        st.builds(
            Transfer,
            SMALL,
            st.none() | SMALL,
            st.none() | st.binary(max_size=2),
            st.just(0),
            settled=st.sampled_from([None, True, False]),
            more=st.booleans(),
            resume=st.booleans(),
            aborted=st.booleans(),
        ),
        st.just(BEGIN),
    ]
)


@pytest.mark.slow
@given(st.data())
def test_frames_in_any_order_with_any_fields_break_nothing(data: st.DataObject) -> None:
    responder = Responder()
    for each in TALK[: data.draw(st.integers(2, len(TALK)))]:
        responder.feed(each)
    for _ in range(data.draw(st.integers(1, 12))):
        channel = data.draw(st.sampled_from([0, 0, 0, 1, 2, 3, 65_535]))
        encoded = encoded_frame(data.draw(FRAMES), channel)
        responder.feed(encoded)


@pytest.mark.slow
@given(st.data())
def test_valid_bytes_that_were_mutated_break_nothing(data: st.DataObject) -> None:
    stream = bytearray(b"".join(data.draw(st.sampled_from([TALK, SASL_TALK]))))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(stream) - 1))
        match data.draw(st.sampled_from(["change", "insert", "delete", "repeat"])):
            case "change":
                stream[at] = data.draw(st.integers(0, 255))
            case "insert":
                stream[at:at] = data.draw(st.binary(min_size=1, max_size=4))
            case "delete":
                del stream[at : at + data.draw(st.integers(1, 4))]
            case _:
                stream += stream[at:]
    responder = Responder()
    while stream:
        size = data.draw(st.integers(1, 200))
        responder.feed(bytes(stream[:size]))
        del stream[:size]


@pytest.mark.slow
@given(st.integers(0, len(SASL_TALK)), st.lists(st.binary(max_size=40), max_size=5))
def test_random_bytes_at_any_point_break_nothing(step: int, garbage: list[bytes]) -> None:
    responder = Responder()
    for each in SASL_TALK[:step]:
        responder.feed(each)
    for each in garbage:
        if each:
            responder.feed(each)


def attach_with(bomb: bytes) -> bytes:
    """An attach with a bomb among its properties."""
    properties = b"\xd1" + (len(bomb) + 7).to_bytes(4, "big") + b"\0\0\0\x02\xa3\x01x" + bomb
    names = [write("n"), b"\x52\x03", b"\x41", NULL, NULL, encoded_composite(Source())]
    body = described(Attach.CODE, listed([*names, *[NULL] * 7, properties]))
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\0\0\0" + body


def compound(code: int, count: int, content: bytes) -> bytes:
    return struct.pack(">BII", code, len(content) + 4, count) + content


ROOM = SETTINGS.max_frame_bytes - 80
BOMBS = {
    "arrays of items without bytes": compound(0xD0, ROOM // 4, b"\xe0\x02\x10\x40" * (ROOM // 4)),
    "empty lists": compound(0xD0, ROOM, b"\x45" * ROOM),
    "empty maps": compound(
        0xD1, 512, b"".join(b"\x53" + bytes((n,)) + b"\xc1\x01\0" for n in range(256))
    ),
    "short strings": compound(0xD0, ROOM // 3, b"\xa1\x01x" * (ROOM // 3)),
}
"""Frames of 2 KiB made to cost as much as can be."""


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_frame_made_to_cost_memory_costs_little(bomb: str) -> None:
    responder = Responder()
    responder.feed(b"".join(TALK[:3]))
    encoded = attach_with(BOMBS[bomb])
    assert len(encoded) <= SETTINGS.max_frame_bytes
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        responder.feed(encoded)
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert responder.machine.sessions
    assert responder.machine.sessions[0].links, "the bomb was not even decoded"
    assert peak < 200 * len(encoded)


@pytest.mark.slow
def test_a_peer_that_only_echoes_and_one_that_only_beats_leave_nothing_behind() -> None:
    responder = Responder()
    for each in TALK:
        responder.feed(each)
    echo, beat = encoded_frame(flow(0, 3, echo=True)), bytes((0, 0, 0, 8, 2, 0, 0, 0))
    responder.feed(echo * 100 + beat * 100)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(20):
            responder.feed(echo * 100 + beat * 100)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert not responder.machine.is_over
    assert grown < 20_000
