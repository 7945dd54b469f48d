"""Messages looked into: where the sections lie, whatever is in the body."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import Message

from broker_shim.amqp_1_0.composites import Header, Properties
from broker_shim.protocol_1_0.codec.decoder import read
from broker_shim.protocol_1_0.codec.encoder import write
from broker_shim.protocol_1_0.codec.errors import DecodeError
from broker_shim.protocol_1_0.codec.scanner import entries_at, entry_at, scalar_at, skip
from broker_shim.protocol_1_0.codec.sections import (
    MOST_SECTIONS,
    body_start,
    sections_of,
    values_before_body,
)
from tests.support.amqp.vectors import VECTORS

HEADER, DATA, VALUE, FOOTER = (
    b"\0\x53\x70\x45",
    b"\0\x53\x75\xa0\x01x",
    b"\0\x53\x77\x40",
    b"\0\x53\x78\xc1\x01\0",
)


@pytest.mark.parametrize("encoded", [each[1] for each in VECTORS])
def test_a_value_is_skipped_as_far_as_it_goes(encoded: str) -> None:
    whole = bytes.fromhex(encoded)
    assert skip(b"\x40" + whole + b"\x41", 1) == 1 + len(whole)
    for size in range(len(whole)):
        with pytest.raises(DecodeError):
            skip(whole[:size], 0)


def test_sections_of_a_message_of_proton_are_found_and_those_wanted_are_read() -> None:
    message = Message(
        id="m-1",
        subject="s",
        durable=True,
        priority=7,
        body={"deep": [1, [2, [3]]]},
        properties={"p": 1},
        annotations={"x-opt-a": 1},
    )
    encoded = message.encode()
    found = sections_of(encoded)
    codes, starts, values, ends = zip(*found, strict=True)
    assert codes == (0x70, 0x72, 0x73, 0x74, 0x77)
    assert starts == (0, *ends[:-1])
    assert ends[-1] == len(encoded)
    assert body_start(encoded) == (0x77, values[-1])
    assert read(encoded, starts[0]) == (Header(durable=True, priority=7), ends[0])
    properties = read(encoded, starts[2])[0]
    assert isinstance(properties, Properties)
    assert (properties.message_id, properties.subject) == ("m-1", "s")
    assert read(encoded, values[3])[0] == {"p": 1}


def test_a_body_may_be_in_many_parts() -> None:
    assert sections_of(DATA + DATA + FOOTER) == [
        (0x75, 0, 3, 6),
        (0x75, 6, 9, 12),
        (0x78, 12, 15, 18),
    ]


def test_a_message_without_a_body_has_the_sections_that_it_has() -> None:
    assert sections_of(b"") == []
    assert sections_of(HEADER) == [(0x70, 0, 3, 4)]
    with pytest.raises(DecodeError, match="no section"):
        body_start(HEADER)


def test_a_body_without_its_content_ends_where_that_begins() -> None:
    for lead in (b"\0\x53\x75\xa0\xff", b"\0\x53\x75\xb0\xff\xff\xff\xff"):
        cut = HEADER + lead + FOOTER
        begin = len(HEADER + lead)
        assert sections_of(cut, is_cut=True) == [
            (0x70, 0, 3, 4),
            (0x75, 4, 7, begin),
            (0x78, begin, begin + 3, begin + 6),
        ]


def test_sections_are_counted() -> None:
    assert len(sections_of(DATA * MOST_SECTIONS)) == MOST_SECTIONS
    with pytest.raises(DecodeError, match="more than 4096 sections") as refused:
        sections_of(DATA * (MOST_SECTIONS + 1))
    assert refused.value.condition == "amqp:resource-limit-exceeded"


def test_a_descriptor_may_be_a_symbol() -> None:
    encoded = b"\0" + write("x").replace(b"\xa1\x01x", b"\xa3\x10amqp:data:binary") + b"\xa0\0"
    assert [code for code, *_ in sections_of(encoded)] == [0x75]


def test_a_body_is_not_looked_into() -> None:
    deep = b"\0\x53\x77" + b"\xd0\0\0\xff\xff" + b"\xff" * 65_535
    assert sections_of(deep)[0][-1] == len(deep)


@pytest.mark.parametrize(
    ("encoded", "says"),
    [
        (b"\x40", "no section"),
        (b"\0\x53\x24\x45", "no section"),
        (b"\0\x40\x40", "no section"),
        (b"\0\xa3\x01x\x40", "no section"),
        (b"\0\xc1\x01\0\x40", "no section"),
        (DATA + HEADER, "after"),
        (VALUE + VALUE, "after"),
        (DATA + VALUE, "after"),
        (HEADER + HEADER + DATA, "after"),
        (DATA[:-1], "ends after"),
        (b"\0\x53\x75\xb0\xff\xff\xff\xffx", "ends after"),
        (b"\0\x53\x77" + b"\0" * 100_000, "too many"),
        (b"\0" * 100_000, "too many"),
        (b"\0\x53", "short"),
        (b"\0\x53\x77", "missing"),
    ],
)
def test_what_is_no_message_is_refused(encoded: bytes, says: str) -> None:
    with pytest.raises(DecodeError, match=says):
        sections_of(encoded)


@given(st.binary(max_size=60), st.integers(0, 70))
def test_skipping_ends_where_reading_does(encoded: bytes, start: int) -> None:
    try:
        end = skip(encoded, start)
    except DecodeError:
        return
    assert start < end <= len(encoded)
    try:
        assert scalar_at(encoded, start)[1] == end
    except DecodeError:  # no text of its charset, and no boolean, have an end all the same
        assert encoded[start] >> 4 in {0x7, 0xA, 0xB} or encoded[start] == 0x56


@pytest.mark.parametrize("encoded", [each[1] for each in VECTORS])
def test_a_scalar_is_what_the_decoder_reads_and_anything_else_stays_encoded(encoded: str) -> None:
    whole = bytes.fromhex(encoded)
    value, end = scalar_at(b"\x40" + whole + b"\x41", 1)
    assert end == 1 + len(whole)
    assert value in (read(whole)[0], whole) or (value != value)  # noqa: PLR0124  # NaN
    for size in range(len(whole)):
        with pytest.raises(DecodeError):
            scalar_at(whole[:size], 0)


def test_what_comes_before_a_body_is_found_as_by_the_whole_walk_also_cut_short() -> None:
    message = Message(id="m-1", durable=True, properties={"p": 1}, annotations={"x-opt-a": 1})
    encoded = message.encode()
    wanted = {code: value for code, _, value, _ in sections_of(encoded)}
    assert values_before_body(encoded) == wanted
    assert values_before_body(b"") == {}
    for size in range(1, len(encoded)):
        try:
            found = values_before_body(encoded[:size])
        except DecodeError:
            continue
        assert found.items() <= wanted.items()
    with pytest.raises(DecodeError):
        values_before_body(HEADER[:-1] + b"\xc0\x09\x01")


_KEYS = st.text(min_size=1, max_size=5) | st.text("a", min_size=250, max_size=260)
_VALUES = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.binary() | _KEYS


@given(
    st.dictionaries(_KEYS, _VALUES | st.lists(_VALUES, max_size=3), max_size=5),
    _KEYS,
    st.integers(0, 600),
)
def test_one_entry_is_found_where_all_entries_are_also_cut_short(
    entries: dict[str, Any], absent: str, size: int
) -> None:
    encoded = write(entries)
    places = entries_at(encoded, 0)
    assert len(places) == len(entries)
    for key in [*entries, absent]:
        name = key.encode()
        at = places.get(name)
        assert entry_at(encoded, 0, name) == (None if at is None else scalar_at(encoded, at)[0])
        with suppress(DecodeError):
            assert size >= len(encoded) or entry_at(encoded[:size], 0, name) is None
