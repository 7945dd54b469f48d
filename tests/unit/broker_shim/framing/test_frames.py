"""Frames of AMQP 0-10: whole, byte by byte, cut short, with more behind; and what is refused."""

from __future__ import annotations

import pytest

from broker_shim.amqp_0_10.definitions import SegmentType
from broker_shim.framing.errors import LocalFramingError, RemoteFramingError
from broker_shim.framing.frames import ALONE, FIRST_FRAME, FIRST_SEGMENT, Frame, FrameReader

HEARTBEAT = bytes.fromhex("0f00000e 00000000 00000000 010a".replace(" ", ""))
BODY = Frame(SegmentType.BODY, FIRST_SEGMENT | FIRST_FRAME, 7, b"abc")


def test_a_frame_is_what_the_specification_draws() -> None:
    assert Frame(SegmentType.CONTROL, ALONE, 0, b"\x01\x0a").encoded == HEARTBEAT
    assert BODY.encoded.hex() == "0a03000f" + "00010007" + "00000000" + b"abc".hex()
    assert FrameReader().feed(HEARTBEAT) == [Frame(0, ALONE, 0, b"\x01\x0a")]


def test_frames_are_found_whole_and_byte_by_byte() -> None:
    stream = HEARTBEAT + BODY.encoded * 2
    whole = FrameReader().feed(stream)
    reader, single = FrameReader(), []
    for at in range(len(stream)):
        single += reader.feed(stream[at : at + 1])
    assert whole == single == [Frame(0, ALONE, 0, b"\x01\x0a"), BODY, BODY]
    assert reader.held_bytes == 0


def test_what_is_cut_short_waits_for_the_rest_wherever_it_is_cut() -> None:
    for size in range(1, len(HEARTBEAT)):
        reader = FrameReader()
        assert reader.feed(HEARTBEAT[:size]) == []
        assert reader.held_bytes == size
        assert len(reader.feed(HEARTBEAT[size:] + HEARTBEAT[:3])) == 1
        assert reader.held_bytes == 3


@pytest.mark.parametrize(
    ("at", "value", "says"),
    [
        (0, 0x1F, "reserved flags"),
        (0, 0x8F, "reserved flags"),
        (1, 4, "segment type 4"),
        (3, 11, "a frame of 11 bytes"),
        (3, 0, "a frame of 0 bytes"),
        (2, 0xFF, "4096 are taken"),
        (4, 1, "reserved bits"),
        (5, 1, "on track 1"),
        (5, 0x10, "on track 16"),
        (8, 1, "reserved bits"),
        (11, 1, "reserved bits"),
    ],
)
def test_a_header_that_is_none_is_refused_before_the_rest_comes(
    at: int, value: int, says: str
) -> None:
    header = bytearray(HEARTBEAT[:12])
    header[at] = value
    with pytest.raises(RemoteFramingError, match=says) as refused:
        FrameReader(4096).feed(bytes(header))
    assert refused.value.code == 501


def test_frames_before_what_is_none_are_found_before_it_is_refused() -> None:
    reader = FrameReader()
    assert reader.feed(BODY.encoded * 2 + bytes(12)) == [BODY, BODY]
    assert reader.is_broken
    for more in (b"", BODY.encoded):
        with pytest.raises(RemoteFramingError, match="a frame of 0 bytes"):
            reader.feed(more)


def test_a_command_on_the_track_of_controls_is_refused() -> None:
    encoded = bytearray(BODY.encoded)
    encoded[5] = 0
    with pytest.raises(RemoteFramingError, match="on track 0"):
        FrameReader().feed(bytes(encoded))


@pytest.mark.parametrize(
    "frame",
    [
        Frame(3, ALONE, 0, bytes(65_524)),
        Frame(3, 16, 0, b""),
        Frame(3, ALONE, 65_536, b""),
        Frame(300, ALONE, 0, b""),
        Frame(4, ALONE, 0, b""),
        Frame(3, ALONE, 0, "text"),  # type: ignore[arg-type]
        Frame(3, ALONE, 0, None),  # type: ignore[arg-type]
        Frame(3, None, 0, b""),  # type: ignore[arg-type]
        Frame("3", ALONE, 0, b""),  # type: ignore[arg-type]
    ],
)
def test_a_frame_that_has_no_form_is_the_callers_fault(frame: Frame) -> None:
    with pytest.raises(LocalFramingError):
        _ = frame.encoded


@pytest.mark.parametrize("size", [4095, 65_536, 0, -1])
def test_a_limit_that_the_specification_does_not_allow_is_refused(size: int) -> None:
    with pytest.raises(LocalFramingError, match="4096 to 65535"):
        FrameReader(size)
