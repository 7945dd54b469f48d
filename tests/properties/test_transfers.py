"""A transfer is read the same the short way and the general way, whole, cut or damaged."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from broker_shim.amqp_1_0.composites import Transfer
from broker_shim.protocol_1_0.codec.composites import encoded_composite
from broker_shim.protocol_1_0.codec.decoder import KNOWN, MAX_DEPTH, UNREADABLE, Reader
from broker_shim.protocol_1_0.codec.errors import DecodeError
from broker_shim.protocol_1_0.codec.frames import transfer_frame
from broker_shim.protocol_1_0.codec.transfers import quick_reader

NUMBERS = st.one_of(st.none(), st.integers(0, 300), st.integers(0, 2**32 - 1))
FLAGS = st.sampled_from([None, False, True])
TRANSFERS = st.builds(
    Transfer,
    st.integers(0, 2**32 - 1),
    NUMBERS,
    st.one_of(st.none(), st.binary(max_size=40)),
    NUMBERS,
    FLAGS,
    st.booleans(),
    st.sampled_from([None, 0, 1]),
    st.none(),
    st.booleans(),
    st.booleans(),
)
HEADER_BYTES, DESCRIPTOR_BYTES = 8, 3


def general() -> Reader:
    """The reader of the table, found behind the quick one."""
    quick: Any = KNOWN[Transfer.CODE]
    assert quick.__code__ is quick_reader(quick).__code__
    (behind,) = quick.__closure__
    reader: Reader = behind.cell_contents
    return reader


GENERAL = general()


def outcome(reader: Reader, encoded: bytes) -> object:
    try:
        value, end = reader(encoded, DESCRIPTOR_BYTES, MAX_DEPTH)
    except (DecodeError, *UNREADABLE) as reason:
        return type(reason), str(reason)
    return value, end


@given(TRANSFERS, st.binary(max_size=3))
def test_as_the_table_writes_it(transfer: Transfer, more: bytes) -> None:
    encoded = encoded_composite(transfer) + more
    assert outcome(KNOWN[Transfer.CODE], encoded) == outcome(GENERAL, encoded)


@given(TRANSFERS, st.integers(0, 1 << 16))
def test_as_it_is_written_the_short_way(transfer: Transfer, size: int) -> None:
    encoded = transfer_frame(0, transfer, size)[HEADER_BYTES:]
    assert outcome(KNOWN[Transfer.CODE], encoded) == outcome(GENERAL, encoded)


@given(TRANSFERS, st.integers(0, 60), st.integers(0, 255), st.integers(0, 60))
def test_damaged_and_cut(transfer: Transfer, place: int, byte: int, length: int) -> None:
    encoded = bytearray(encoded_composite(transfer))
    encoded[place % len(encoded)] = byte
    for damaged in (bytes(encoded), bytes(encoded[: length % (len(encoded) + 1)])):
        assert outcome(KNOWN[Transfer.CODE], damaged) == outcome(GENERAL, damaged)
