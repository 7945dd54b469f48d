"""Frames: whole, byte by byte, cut short, too large."""

from __future__ import annotations

import itertools

import pytest

from broker_shim.amqp_1_0.composites import Accepted, End, Flow, Transfer
from broker_shim.protocol_1_0.codec.composites import encoded_composite, read_performative
from broker_shim.protocol_1_0.codec.errors import ProtocolViolation
from broker_shim.protocol_1_0.codec.frames import (
    AMQP_HEADER,
    EMPTY_FRAME,
    SASL_HEADER,
    FrameDecoder,
    encoded_frame,
    transfer_frame,
)

FRAMES = [
    encoded_frame(End(), 7),
    EMPTY_FRAME,
    transfer_frame(1, Transfer(0, 5, b"tag", 0), 3) + b"abc",
    encoded_frame(Flow(incoming_window=1, next_outgoing_id=2, outgoing_window=3), 65_535),
]


def bodies(decoder: FrameDecoder) -> list[tuple[int, bytes]]:
    found = []
    while (frame := decoder.next_frame()) is not None:
        found.append((frame.channel, frame.encoded[frame.start : frame.end]))
    return found


WHOLE = [(int.from_bytes(frame[6:8], "big"), frame[8:]) for frame in FRAMES]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 20, 1_000])
def test_frames_come_out_the_same_however_the_bytes_come(size: int) -> None:
    decoder = FrameDecoder(512)
    stream, found = b"".join(FRAMES), []
    for at in range(0, len(stream), size):
        decoder.feed(stream[at : at + size])
        found += bodies(decoder)
    assert found == WHOLE
    assert decoder.next_frame() is None


def test_frames_come_out_the_same_wherever_the_bytes_are_cut() -> None:
    long = transfer_frame(1, Transfer(0, 6, b"tag", 0), 200) + bytes(200)
    stream = b"".join([*FRAMES, long, *FRAMES])
    for cut in range(len(stream)):
        decoder = FrameDecoder(512)
        decoder.feed(stream[:cut])
        found = bodies(decoder)
        decoder.feed(stream[cut:])
        assert found + bodies(decoder) == [*WHOLE, (1, long[8:]), *WHOLE]


def test_bytes_that_were_not_asked_for_yet_stay() -> None:
    decoder = FrameDecoder(512)
    decoder.feed(FRAMES[0] + FRAMES[1] + FRAMES[2][:5])
    assert decoder.next_frame() is not None
    decoder.feed(FRAMES[2][5:])
    assert bodies(decoder) == WHOLE[1:3]


@pytest.mark.parametrize("size", [1, 7, 100])
def test_headers_and_frames_may_follow_each_other(size: int) -> None:
    decoder, found = FrameDecoder(512), []
    stream = SASL_HEADER.encoded() + FRAMES[0] + AMQP_HEADER.encoded()
    wanted = itertools.chain((decoder.next_header, decoder.next_frame, decoder.next_header))
    ask = next(wanted)
    for at in range(0, len(stream), size):
        decoder.feed(stream[at : at + size])
        while (item := ask()) is not None:
            found.append(item)
            ask = next(wanted, lambda: None)
    assert [found[0], found[2]] == [SASL_HEADER, AMQP_HEADER]


def test_an_extended_header_is_skipped() -> None:
    decoder = FrameDecoder(512)
    body = encoded_composite(End())
    decoder.feed(bytes((0, 0, 0, 16 + len(body), 4, 0, 0, 3)) + b"extended" + body)
    assert bodies(decoder) == [(3, body)]


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ("ffffffff02000000", "4294967295 bytes"),
        ("0000020102000000", "513 bytes"),
        ("0000000702000000", "starts at 8"),
        ("0000000801000000", "starts at 4"),
        ("0000000803000000", "starts at 12"),
        ("0000000000000000", "starts at 0"),
    ],
)
def test_an_impossible_frame_is_refused_at_its_header(header: str, says: str) -> None:
    decoder = FrameDecoder(512)
    decoder.feed(bytes.fromhex(header))
    with pytest.raises(ProtocolViolation, match=says) as violation:
        decoder.next_frame()
    assert violation.value.condition == "amqp:connection:framing-error"


@pytest.mark.parametrize("garbage", [b"G", b"AMQ_", b"\0", b"HTTP/1.1"])
def test_what_is_no_protocol_header_is_refused_at_its_first_wrong_byte(garbage: bytes) -> None:
    decoder = FrameDecoder(512)
    for byte in garbage[:-1]:
        decoder.feed(bytes((byte,)))
    decoder.feed(garbage[-1:])
    with pytest.raises(ProtocolViolation, match="not AMQP"):
        decoder.next_header()


def test_a_frame_that_never_ends_gathers_its_size_and_no_more() -> None:
    decoder = FrameDecoder(512)
    decoder.feed(b"\0\0\x02\0\x02\0\0\0")
    for _ in range(503):
        assert decoder.next_frame() is None
        decoder.feed(b"x")
    assert decoder.next_frame() is None
    decoder.feed(b"x")
    assert len(bodies(decoder)[0][1]) == 504


@pytest.mark.parametrize(
    "transfer",
    [
        Transfer(0, 0, b"", 0, settled=False),
        Transfer(3, 2**32 - 1, b"t" * 32, 7, settled=True, more=True),
        Transfer(3),
        Transfer(3, 1, b"t", 0, settled=None, more=True),
        Transfer(3, 1, b"t", 0, settled=False, state=Accepted()),
        Transfer(3, settled=True, aborted=True),
        Transfer(3, 1, b"t", 0, settled=False, batchable=True, resume=True, rcv_settle_mode=1),
    ],
)
def test_a_quick_transfer_frame_means_what_the_table_would_write(transfer: Transfer) -> None:
    head = transfer_frame(9, transfer, 4)
    assert int.from_bytes(head[:4], "big") == len(head) + 4
    assert head[6:8] == b"\0\x09"
    found, at = read_performative(head, 8, len(head))
    assert at == len(head)
    told = transfer if transfer.settled is not None else Transfer(**fields(transfer, settled=None))
    if len(head) > 8 + len(encoded_composite(transfer)):  # written in one go: settled is said
        told = Transfer(**fields(transfer, settled=bool(transfer.settled)))
    assert found == told


def fields(transfer: Transfer, **changed: object) -> dict[str, object]:
    names = (field[0].replace("-", "_") for field in Transfer.FIELDS)
    return {name: getattr(transfer, name) for name in names} | changed
