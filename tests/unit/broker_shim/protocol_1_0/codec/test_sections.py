"""Messages looked into: where the sections lie, whatever is in the body."""

from __future__ import annotations

import pytest
from proton import Message

from broker_shim.amqp_1_0.composites import Header, Properties
from broker_shim.protocol_1_0.codec.decoder import read
from broker_shim.protocol_1_0.codec.encoder import write
from broker_shim.protocol_1_0.codec.errors import DecodeError
from broker_shim.protocol_1_0.codec.sections import MessageSection, sections_of, skip
from tests.unit.broker_shim.protocol_1_0.codec.test_types import VECTORS

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
    assert [each.code for each in found] == [0x70, 0x72, 0x73, 0x74, 0x77]
    assert found[0].start == 0
    assert found[-1].end == len(encoded)
    header, end = read(encoded, found[0].start)
    assert (header, end) == (Header(durable=True, priority=7), found[0].end)
    properties = read(encoded, found[2].start)[0]
    assert isinstance(properties, Properties)
    assert (properties.message_id, properties.subject) == ("m-1", "s")
    assert read(encoded, found[3].value)[0] == {"p": 1}


def test_a_body_may_be_in_many_parts() -> None:
    assert sections_of(DATA + DATA + FOOTER) == [
        MessageSection(0x75, 0, 3, 6),
        MessageSection(0x75, 6, 9, 12),
        MessageSection(0x78, 12, 15, 18),
    ]


def test_a_descriptor_may_be_a_symbol() -> None:
    encoded = b"\0" + write("x").replace(b"\xa1\x01x", b"\xa3\x10amqp:data:binary") + b"\xa0\0"
    assert [each.code for each in sections_of(encoded)] == [0x75]


def test_a_body_is_not_looked_into() -> None:
    deep = b"\0\x53\x77" + b"\xd0\0\0\xff\xff" + b"\xff" * 65_535
    assert sections_of(deep)[0].end == len(deep)


@pytest.mark.parametrize(
    ("encoded", "says"),
    [
        (b"", "without a body"),
        (HEADER, "without a body"),
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
        (b"\0" * 100_000, "deeper"),
        (b"\0\x53", "short"),
        (b"\0\x53\x77", "missing"),
    ],
)
def test_what_is_no_message_is_refused(encoded: bytes, says: str) -> None:
    with pytest.raises(DecodeError, match=says):
        sections_of(encoded)
