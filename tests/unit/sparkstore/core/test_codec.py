from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkstore.core.codec import packer, unpack_all
from sparkstore.core.records import (
    ExchangeBindingKey,
    Kind,
    MessageHeader,
    Record,
    RecordRun,
    bound,
    message_dequeued,
    message_enqueued,
    message_released,
)
from sparkstore.errors import CorruptData

HEADER = MessageHeader(
    "amqp-1.0", b"\x00\xff", priority=9, subject="späť 🦊", properties=(("a", "1"), ("a", "2"))
)
RECORDS = [
    bound(1, ExchangeBindingKey("e", "q\x00", "a.#"), '{"n": 1}'),
    message_enqueued(2**62, "q", 2**40, HEADER, b"\x00body\xff", transaction=7),
    message_released(-1, "🦊", 3, 4),
]

_numbers = st.none() | st.integers(-(2**63), 2**63 - 1)
_text = st.none() | st.text(max_size=8)
_bytes = st.none() | st.binary(max_size=8)
_headers = st.builds(
    MessageHeader,
    _text,
    _bytes,
    st.booleans(),
    st.integers(0, 9),
    *[_numbers] * 2,
    *[_text] * 11,
    *[st.integers(0, 2**40)] * 2,
    st.lists(st.tuples(st.text(max_size=4), st.text(max_size=4)), max_size=3).map(tuple),
)
records = st.builds(
    Record,
    st.sampled_from(Kind),
    st.integers(0, 2**60),
    _text,
    _numbers,
    _text,
    _numbers,
    _numbers,
    st.none() | _headers,
    _bytes,
    _numbers,
    _text,
    _text,
    _text,
    _text,
    _numbers,
    _bytes,
)


def packed(records: list[Record]) -> bytes:
    pack = packer()
    return b"".join([pack(record) for record in records])


def fields(record: Record) -> list[Any]:
    """What a record is in MessagePack, for tests that spoil it."""
    unpacked: list[Any] = msgpack.unpackb(packed([record]))
    return unpacked


@given(st.lists(records, max_size=4))
def test_what_was_packed_unpacks_to_the_same_records(given_records: list[Record]) -> None:
    assert [*unpack_all(packed(given_records))] == given_records


def test_a_memoryview_unpacks_as_bytes_do() -> None:
    assert [*unpack_all(memoryview(packed(RECORDS)))] == RECORDS


def test_no_bytes_are_no_records() -> None:
    assert [*unpack_all(b"")] == []


def test_a_kind_unpacks_as_a_kind_and_text_and_bytes_stay_apart() -> None:
    record = next(unpack_all(packed([RECORDS[1]])))
    assert record.kind is Kind.ENQUEUED
    assert isinstance(record.message, MessageHeader)
    assert (type(record.queue), type(record.body)) == (str, bytes)


def test_records_cut_short_at_any_byte_are_corrupt_data_after_the_whole_ones() -> None:
    whole = packed(RECORDS)
    ends = [len(packed(RECORDS[:count])) for count in range(len(RECORDS) + 1)]
    for size in range(len(whole)):
        unpacked: list[Record] = []
        if size in ends:
            assert len([*unpack_all(whole[:size])]) == ends.index(size)
            continue
        with pytest.raises(CorruptData, match="byte"):
            unpacked.extend(unpack_all(whole[:size]))
        assert unpacked == RECORDS[: sum(end <= size for end in ends[1:])]


@pytest.mark.parametrize("trailing", [b"\x00", b"\xc1", b"\x90", b"text", b"\xff" * 30])
def test_trailing_bytes_are_corrupt_data(trailing: bytes) -> None:
    with pytest.raises(CorruptData):
        [*unpack_all(packed(RECORDS) + trailing)]


@pytest.mark.parametrize("kind", [0, max(Kind) + 1, 99, "enqueued", None, [1], {}])
def test_an_unknown_kind_is_corrupt_data(kind: object) -> None:
    spoiled = msgpack.packb([kind, *fields(RECORDS[0])[1:]])
    with pytest.raises(CorruptData, match="unreadable record at byte 0"):
        [*unpack_all(spoiled)]


@pytest.mark.parametrize("change", [-9, -1, 1])
def test_a_record_or_message_with_other_fields_is_corrupt_data(change: int) -> None:
    def resized(values: list[Any]) -> list[Any]:
        return [*values, None] if change > 0 else values[:change]

    whole = fields(RECORDS[1])
    at = Record._fields.index("message")
    for spoiled in (resized(whole), [*whole[:at], resized(whole[at]), *whole[at + 1 :]]):
        with pytest.raises(CorruptData):
            [*unpack_all(msgpack.packb(spoiled))]


RUN = RecordRun(
    Record(Kind.ENQUEUED, 5, "q", 7, member="m", request=3), 3, [HEADER], [b"a", b"", b"ccc"]
)


def test_a_run_is_read_as_its_records() -> None:
    first = RUN.record._replace(message=HEADER)
    expected = [
        first._replace(body=b"a"),
        first._replace(message_id=8, request=4, body=b""),
        first._replace(message_id=9, request=5, body=b"ccc"),
    ]
    assert [*RUN.singles()] == expected
    assert [*unpack_all(packer()(RUN) + packed(RECORDS))] == [*expected, *RECORDS]
    taken = RecordRun(message_dequeued(5, "q", 7, "c"), 2)
    assert [*unpack_all(packer()(taken))] == [taken.record, taken.record._replace(message_id=8)]


@pytest.mark.parametrize(
    "spoiled",
    [
        RUN._replace(rows=2),
        RUN._replace(rows=1, contents=[b"a"]),
        RUN._replace(rows=0, contents=[], messages=[]),
        RUN._replace(rows=-1, contents=[], messages=[]),
        RUN._replace(rows=1 << 60, contents=[], messages=[]),
        RUN._replace(rows="3"),
        RUN._replace(messages=[]),
        RUN._replace(messages=[HEADER, HEADER]),
        RUN._replace(messages=[None]),
        RUN._replace(contents=[]),
        RUN._replace(contents=5),
        RUN._replace(record=RUN.record._replace(message_id=None)),
        RUN._replace(record=()),
        RUN._replace(record=RUN),
        tuple(RUN)[:3],
        (*RUN, None),
        (),
    ],
)
def test_a_run_that_lies_about_its_records_is_corrupt_data(spoiled: Any) -> None:
    with pytest.raises(CorruptData, match="unreadable record at byte"):
        [*unpack_all(packed(RECORDS) + msgpack.packb(spoiled))]


def test_a_record_of_an_earlier_release_is_read_as_it_was_written() -> None:
    golden = "dc00100902a17105a163c0c0c0c0c0c0c0c0c0c0c0"
    assert [*unpack_all(bytes.fromhex(golden))] == [message_dequeued(2, "q", 5, "c")]
    assert packed([message_dequeued(2, "q", 5, "c")]).hex() == golden


@given(st.binary(max_size=60))
def test_any_bytes_are_records_or_corrupt_data(noise: bytes) -> None:
    try:
        found = [*unpack_all(noise)]
    except CorruptData:
        return
    assert all(isinstance(record, Record) and record.kind in Kind for record in found)


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_a_flipped_byte_is_another_record_or_corrupt_data(at: int, flip: int) -> None:
    spoiled = bytearray(packed(RECORDS))
    spoiled[at % len(spoiled)] ^= flip
    try:
        # As text: Python holds True and 1 to be equal.
        assert repr([*unpack_all(bytes(spoiled))]) != repr(RECORDS)
    except CorruptData:
        return


@pytest.mark.parametrize(
    ("change", "error"),
    [({"message_id": 2**64}, OverflowError), ({"queue": "half \ud83e"}, UnicodeEncodeError)],
)
def test_what_cannot_be_packed_raises(change: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        packed([RECORDS[0]._replace(**change)])
