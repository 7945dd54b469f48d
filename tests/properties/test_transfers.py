"""Transfers are read the same together and frame by frame, whole, cut or damaged."""

from __future__ import annotations

from itertools import takewhile

from hypothesis import given
from hypothesis import strategies as st

from broker_shim.amqp_1_0.composites import Accepted, TransactionalState, Transfer
from broker_shim.protocol_1_0.codec.composites import read_performative
from broker_shim.protocol_1_0.codec.frames import FrameDecoder, transfer_frame
from broker_shim.protocol_1_0.codec.transfers import whole_deliveries

NUMBERS = st.one_of(st.none(), st.integers(0, 300), st.integers(0, 2**32 - 1))
FLAGS = st.sampled_from([None, False, True])
TXN = TransactionalState(b"t" * 16)
STATES = st.sampled_from([None, None, TXN, TransactionalState(b"", Accepted()), Accepted()])
TRANSFERS = st.builds(
    Transfer,
    st.integers(0, 2**32 - 1),
    NUMBERS,
    st.one_of(st.none(), st.binary(max_size=40)),
    NUMBERS,
    FLAGS,
    st.booleans(),
    st.sampled_from([None, 0, 1]),
    STATES,
    st.booleans(),
    st.booleans(),
)
FRAMES = st.lists(st.tuples(TRANSFERS, st.binary(max_size=4), st.integers(0, 1)), max_size=4)
LARGEST = 1 << 9


def check(encoded: bytes, most: int) -> int:
    """See that what is read together is what frames read one by one say; how many there were."""
    found = whole_deliveries(encoded, 0, LARGEST, most)
    if found is None:
        return 0
    assert len(found.tags) <= most
    decoder = FrameDecoder(LARGEST)
    decoder.feed(encoded)
    for index, (tag, start, end) in enumerate(
        zip(found.tags, found.starts, found.ends, strict=True)
    ):
        frame = decoder.next_frame()
        assert frame is not None
        transfer, at = read_performative(frame.encoded, frame.start, frame.end)
        delivery_id = (found.first_id + index) % (1 << 32)
        its = Transfer(found.handle, delivery_id, tag, 0, transfer.settled, state=found.state)
        assert transfer == its
        assert bool(transfer.settled) is found.is_settled
        assert (frame.kind, frame.channel) == (0, found.channel)
        assert (at, frame.end) == (start, end)
    return len(found.tags)


def encoded_frames(frames: list[tuple[Transfer, bytes, int]]) -> bytes:
    return b"".join(
        transfer_frame(channel, transfer, len(payload)) + payload
        for transfer, payload, channel in frames
    )


@given(FRAMES, st.integers(1, 5))
def test_what_is_read_together_is_what_the_frames_say(
    frames: list[tuple[Transfer, bytes, int]], most: int
) -> None:
    check(encoded_frames(frames), most)


@given(
    st.integers(0, 2**32 - 1) | st.sampled_from([0, 255, 2**32 - 2]),
    st.integers(0, 32).flatmap(lambda size: st.lists(st.binary(min_size=size, max_size=size))),
    FLAGS,  # None: left out, as proton does
    st.sampled_from([None, TXN]),
)
def test_whole_deliveries_of_a_link_are_read_together(
    first_id: int, tags: list[bytes], settled: bool | None, state: TransactionalState | None
) -> None:
    ids = [(first_id + number) % (1 << 32) for number in range(len(tags))]
    frames = [
        (Transfer(3, number, tag, 0, settled, state=state), b"x" * (number % 3), 1)
        for number, tag in zip(ids, tags, strict=True)
    ]
    # Where a state is told, ids are written as short as they may be: a run ends where they grow.
    widths = [0 if state is None else min(number.bit_length() + 7 >> 3, 2) for number in ids]
    together = len([*takewhile(lambda width: width == widths[0], widths)])
    assert check(encoded_frames(frames), len(frames) + 1) == together


@given(FRAMES, st.integers(0, 200), st.integers(0, 255), st.integers(0, 200))
def test_damaged_and_cut(
    frames: list[tuple[Transfer, bytes, int]], place: int, byte: int, length: int
) -> None:
    encoded = bytearray(encoded_frames(frames) or b"x")
    encoded[place % len(encoded)] = byte
    for damaged in (bytes(encoded), bytes(encoded[: length % (len(encoded) + 1)])):
        check(damaged, 5)
