"""Messages that a reader reads together, `parse` reads just so."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_shim.listener_1_0.messages.message import parse
from broker_shim.listener_1_0.messages.message_reader import MessageReader
from broker_shim.protocol_1_0.codec.errors import DecodeError
from sparkstore.core.records import MessageHeader, each_header

NOW_US = 1_700_000_000_000_000
MOST = 1 << 16
LEADS = (
    b"",
    b"\x00\x53\x70\xc0\x02\x01\x41",  # durable
    b"\x00\x53\x70\xc0\x08\x03\x41\x40\x70\x00\x00\x03\xe8",  # with a time to live of a second
    b"\x00\x53\x72\xc1\x01\x00",
    b"\x00\x53\x73\xc0\x04\x01\xa1\x01m",
)
CREATED = b"\x40" * 8 + b"\x83\x00\x00\x01\x9a\xbc\xde\xf0\x12"
PROPERTIES = tuple(
    b"\x00\x53\x73\xc0" + bytes([len(fields) + 1, count]) + fields
    for message_id in (b"\xa1\x03a-1", b"\xa0\x02\xff1", b"\x98" + bytes(16), b"\x53\x07", b"\x40")
    for count, fields in (
        (1, message_id),
        (11, message_id + CREATED + b"\xa1\x01g"),
        (4, message_id + b"\x40\x40\xa1\x02s3"),
    )
)
VALUES = (b"\xa1\x01v", b"\xa1\x02\xc3\xa4", b"\x54\xff", b"\x41", b"\x56\x02", b"\x40", b"\x45")
VALUES += (b"\x83" + bytes(7) + b"\x05", b"\xa0\x01\xff", b"\x82" + bytes(8), b"\xb1\0\0\0\1l")
APPLICATION = st.lists(
    st.tuples(
        st.sampled_from([b"\xa1\x01a", b"\xa1\x01b", b"\xb1\0\0\0\2cc"]), st.sampled_from(VALUES)
    ),
    max_size=3,
).map(
    lambda pairs: (
        b"\x00\x53\x74\xd1"
        + (4 + sum(len(key + value) for key, value in pairs)).to_bytes(4, "big")
        + (2 * len(pairs)).to_bytes(4, "big")
        + b"".join(key + value for key, value in pairs)
    )
)
BODIES = (
    b"\x00\x53\x75\xa0\x04four",
    b"\x00\x53\x75\xb0\x00\x00\x00\x04four",
    b"\x00\x53\x77\xa1\x04four",
    b"\x00\x53\x77\xa0\x04four",
    b"\x00\x53\x77\x43",
    b"\x00\x53\x75\xa0\x06\x00\x53\x78\xc1\x01\x00",  # its content looks like a footer
)
FOOTERS = (b"", b"\x00\x53\x78\xc1\x01\x00")
MESSAGES = st.builds(
    lambda leads, body, footer: b"".join((*leads, body, footer)),
    st.one_of(
        st.sets(st.sampled_from(LEADS)).map(lambda chosen: sorted(chosen, key=LEADS.index)),
        st.tuples(st.sampled_from(LEADS[:4]), st.sampled_from(PROPERTIES), APPLICATION),
    ),
    st.sampled_from(BODIES),
    st.sampled_from(FOOTERS),
)


@st.composite
def sent(draw: st.DrawFn) -> list[bytes]:
    """Messages of a link: each is new, alike, or has a byte changed or dropped."""
    messages = [draw(MESSAGES)]
    for _ in range(draw(st.integers(1, 6))):
        message = draw(st.one_of(MESSAGES, st.just(messages[-1])))
        if draw(st.booleans()):
            at = draw(st.integers(0, len(message) - 1))
            message = message[:at] + draw(st.binary(max_size=2)) + message[at + 1 :]
        messages.append(message)
    return messages


def read_all(reader: MessageReader, messages: list[bytes]) -> tuple[list[Any], int]:
    """What a reader says of messages that lie one after the other; how many it read together."""
    ends = [*accumulate(map(len, messages))]
    starts, encoded = [0, *ends[:-1]], b"".join(messages)
    said, together = list[Any](), 0
    while (at := len(said)) < len(messages):
        run = reader.read_run(encoded, starts[at:], ends[at:])
        if run is not None:
            headers = each_header(run.headers, len(run.contents))
            said += zip(headers, run.contents, strict=True)
            together += len(run.contents)
            continue
        try:
            said.append(reader.read(messages[at], NOW_US))
        except DecodeError as reason:
            said.append(str(reason))
    return said, together


def parsed(message: bytes) -> Any:
    try:
        return parse(message, now_us=NOW_US, most_header_bytes=MOST)
    except DecodeError as reason:
        return str(reason)


@given(sent())
def test_messages_are_read_together_as_they_are_parsed(messages: list[bytes]) -> None:
    said, _together = read_all(MessageReader(MOST), messages)
    assert said == [*map(parsed, messages)]


def of_sender(number: int, body: bytes = BODIES[0]) -> bytes:
    """A message with an id, a time, and properties of its own."""
    name = b"%d" % number
    fields = b"\xa1" + bytes([len(name)]) + name + b"\x40" * 8 + b"\x83" + number.to_bytes(8, "big")
    value = b"\x54" + bytes([number]) if number < 9 else b"\x71" + number.to_bytes(4, "big")
    items = b"\xa1\x01a\xa1" + bytes([len(name)]) + name + b"\xa1\x01b" + value
    message = LEADS[1] + b"\x00\x53\x73\xc0" + bytes([len(fields) + 1, 10]) + fields
    return message + b"\x00\x53\x74\xc1" + bytes([len(items) + 1, 4]) + items + body


def test_messages_of_one_sender_are_read_together_but_the_first() -> None:
    messages = [of_sender(number) for number in range(8, 108)]
    said, together = read_all(MessageReader(MOST), messages)
    assert said == [*map(parsed, messages)]
    assert together == 99
    assert said[5][0].properties == (("a", "13"), ("b", "13"))


def test_messages_that_are_alike_share_a_header() -> None:
    reader = MessageReader(MOST)
    message = of_sender(5, b"\x00\x53\x75\xa0\x04")
    messages = [message + body for body in (b"zero", b"one.", b"two.")]
    reader.read(messages[0], NOW_US)
    run = reader.read_run(
        b"".join(messages[1:]), [0, len(messages[1])], [len(messages[1]), 2 * len(messages[2])]
    )
    assert run is not None
    assert run.headers == (parsed(messages[0])[0],)
    assert run.contents == [b"one.", b"two."]


@pytest.mark.parametrize("place", range(len(of_sender(7))))
def test_a_message_that_is_cut_or_lies_ends_the_run_before_it(place: int) -> None:
    good = [of_sender(number) for number in range(1, 6)]
    for wrong in (good[3][:place], good[3][:place] + b"\xff" + good[3][place + 1 :]):
        messages = [*good[:3], wrong, good[4]]
        said, _together = read_all(MessageReader(MOST), messages)
        assert said == [*map(parsed, messages)]


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(LEADS[2] + BODIES[0], id="one that expires"),
        pytest.param(LEADS[1] + BODIES[0] + FOOTERS[1], id="one with a footer"),
        pytest.param(LEADS[1] + BODIES[4], id="a number"),
    ],
)
def test_what_the_lead_does_not_say_all_of_is_read_each_time(message: bytes) -> None:
    said, together = read_all(MessageReader(MOST), [message] * 3)
    assert said == [parsed(message)] * 3
    assert not together


def test_text_that_is_not_utf_8_is_refused_by_itself() -> None:
    texts = [b"ok", b"\xc3\xa4", b"\xc3(", b"ok"]
    messages = [b"\x00\x53\x77\xa1\x02" + text for text in texts]
    said, together = read_all(MessageReader(MOST), messages)
    assert [content for _header, content in (said[0], said[1], said[3])] == [
        b"ok",
        b"\xc3\xa4",
        b"ok",
    ]
    assert said[2] == parsed(messages[2])
    assert together == 2


def test_a_sender_whose_messages_all_differ_is_seldom_compared() -> None:
    reader, shapes = MessageReader(MOST), set[MessageHeader | None]()
    for number in range(1, 81):
        reader.read(of_sender(number), NOW_US)
        shapes.add(reader.header)
    assert len(shapes) == 3
