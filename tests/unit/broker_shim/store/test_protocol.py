"""Bytes in, frames out: whole, byte by byte, cut anywhere, truncated, and not of this protocol."""

from __future__ import annotations

import struct
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_shim.errors import InvalidRequest
from broker_shim.store import protocol as wire
from broker_shim.store.protocol import Decoder, frame_packer, hello_of, welcome_of

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    | st.binary(max_size=40),
    lambda inner: st.lists(inner, max_size=4).map(tuple),
    max_leaves=12,
)
FRAMES = st.lists(
    st.tuples(st.integers(0, 255), st.lists(VALUES, max_size=5).map(tuple)), max_size=6
)


def packed(frames: list[wire.Frame]) -> bytes:
    pack = frame_packer()
    return b"".join(pack(kind, body) for kind, body in frames)


@given(FRAMES)
def test_frames_come_back_as_they_were_whole_and_byte_by_byte(frames: list[wire.Frame]) -> None:
    content = packed(frames)
    assert Decoder().feed(content) == frames
    decoder, found = Decoder(), []
    for index in range(len(content)):
        found += decoder.feed(content[index : index + 1])
    assert found == frames


@given(FRAMES, st.lists(st.integers(0, 400), max_size=8))
def test_frames_come_back_however_the_bytes_are_cut(
    frames: list[wire.Frame], cuts: list[int]
) -> None:
    content, decoder = packed(frames), Decoder()
    found: list[wire.Frame] = []
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(content)], strict=True):
        found += decoder.feed(memoryview(content)[start:end])
    assert found == frames


@given(FRAMES, st.integers(1, 30))
def test_a_frame_that_is_cut_short_is_not_there_yet(frames: list[wire.Frame], cut: int) -> None:
    content = packed([*frames, (wire.SIZE, (1,))])
    found = Decoder().feed(content[: max(len(content) - cut, 0)])
    assert found == frames[: len(found)]
    assert len(found) <= len(frames)


@given(st.binary(min_size=1, max_size=300))
def test_garbage_is_refused_or_waits_for_more_and_never_anything_else(garbage: bytes) -> None:
    try:
        frames = Decoder().feed(garbage)
    except InvalidRequest:
        return
    assert all(type(body) is tuple for _, body in frames)


def raw(kind: int, body: bytes, length: int | None = None) -> bytes:
    return struct.pack(">IB", len(body) + 1 if length is None else length, kind) + body


@pytest.mark.parametrize(
    "content",
    [
        raw(2, b"", 0),
        raw(2, b"", 1),
        raw(2, b"", wire.MAX_FRAME_BYTES + 1),
        raw(2, b"", 0xFFFF_FFFF),
        raw(2, msgpack.packb(7)),
        raw(2, msgpack.packb("text")),
        raw(2, msgpack.packb([1]) + b"\x00"),
        raw(2, msgpack.packb([1, 2])[:-1]) + raw(2, msgpack.packb([3])),
        raw(2, msgpack.packb([{"a": 1}])),
        raw(2, msgpack.packb([msgpack.ExtType(5, b"x")])),
        raw(2, b"\xdd\xff\xff\xff\xff"),
        raw(2, b"\x91" * 3000),
        raw(2, b"\xc1"),
        raw(2, b"\x91\xa2\xff\xfe"),
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    ],
    ids=repr,
)
def test_what_is_no_frame_is_refused(content: bytes) -> None:
    with pytest.raises(InvalidRequest):
        Decoder().feed(content)


def test_the_largest_frame_is_taken_and_one_byte_more_is_not_sent() -> None:
    pack = frame_packer()
    room = wire.MAX_FRAME_BYTES - len(pack(2, (b"x" * 70_000,))) + 5 + 69_999
    frame = pack(2, (bytes(room),))
    assert len(frame) == wire.MAX_FRAME_BYTES + 4
    assert Decoder().feed(frame) == [(2, (bytes(room),))]
    with pytest.raises(InvalidRequest, match="limit"):
        pack(2, (bytes(room + 2),))


HELLO: tuple[Any, ...] = (wire.VERSION, "m", "i", None, False, None)


def test_hello_is_taken_as_it_was_said() -> None:
    assert hello_of((wire.HELLO, HELLO)) == ("m", "i", *(None, False, None, None, None, None), 5)
    assert hello_of((wire.HELLO, (4, *HELLO[1:]))).version == 4
    assert hello_of((wire.HELLO, (*HELLO, "former"))).former_host == "former"
    seen = ("root", 1, "run", 7)
    assert hello_of((wire.HELLO, (*HELLO, None, seen))).seen == seen
    said = hello_of((wire.HELLO, (*HELLO, None, None, 600)))
    assert (said.seen, said.lease_s) == (None, 600)
    assert hello_of((wire.HELLO, (*HELLO, None, seen, 600))).seen == seen


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ((2, *HELLO[1:]), r"version 2 .* version 5"),
        ((), "version none"),
        (HELLO[:-1], "HELLO is"),
        ((wire.VERSION, b"m", "i", None, False, None), "HELLO is"),
        ((wire.VERSION, "m", "i", None, 0, None), "HELLO is"),
        ((wire.VERSION, "", "i", None, False, None), "name is 1 to 200"),
        ((wire.VERSION, "a/b", "i", None, False, None), "name is 1 to 200"),
        ((wire.VERSION, "m" * 201, "i", None, False, None), "name is 1 to 200"),
        ((wire.VERSION, "m", "", None, False, None), "incarnation"),
        ((*HELLO, None, ("root", 1, "run")), "what HELLO has seen"),
        ((*HELLO, None, ("root", 1, "run", "7")), "what HELLO has seen"),
        ((*HELLO, None, None), "HELLO is"),
        ((*HELLO, None, None, None), "HELLO is"),
        ((*HELLO, None, None, "600"), "HELLO is"),
        ((*HELLO, None, None, 0), "a lease is 1 to 604800 seconds, not 0"),
        ((*HELLO, None, None, 604_801), "a lease is"),
    ],
    ids=repr,
)
def test_a_hello_that_cannot_be_is_told_why(body: tuple[Any, ...], told: str) -> None:
    with pytest.raises(InvalidRequest, match=told):
        hello_of((wire.HELLO, body))


def test_the_first_frame_must_be_hello() -> None:
    with pytest.raises(InvalidRequest, match="first frame must be HELLO"):
        hello_of((wire.DO, (1, ())))


def test_a_service_of_another_version_is_told_with_both_versions() -> None:
    with pytest.raises(InvalidRequest, match=r"version 9 .* version 5"):
        welcome_of((9,))
    with pytest.raises(InvalidRequest, match="well formed"):
        welcome_of((wire.VERSION, "no"))
