"""What a reader takes for a message like the one before it, `parse` reads just so."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_shim.listener_1_0.messages.message import parse
from broker_shim.listener_1_0.messages.message_reader import MessageReader
from broker_shim.protocol_1_0.codec.errors import DecodeError

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
        (10, message_id + CREATED),
        (4, message_id + b"\x40\x40\xa1\x02s3"),
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
        st.tuples(st.sampled_from(LEADS[:4]), st.sampled_from(PROPERTIES)),
    ),
    st.sampled_from(BODIES),
    st.sampled_from(FOOTERS),
)


@st.composite
def sent(draw: st.DrawFn) -> list[bytes]:
    """Messages of a link, the first two alike; each other is new, alike, or has a byte changed."""
    messages = [draw(MESSAGES)] * 2
    for _ in range(draw(st.integers(1, 6))):
        message = draw(st.one_of(MESSAGES, st.just(messages[-1])))
        if draw(st.booleans()):
            at = draw(st.integers(0, len(message) - 1))
            message = message[:at] + draw(st.binary(min_size=1, max_size=1)) + message[at + 1 :]
        messages.append(message)
    return messages


@given(sent())
def test_a_message_that_is_alike_is_parsed_alike(messages: list[bytes]) -> None:
    reader = MessageReader(MOST)
    for number, message in enumerate(messages):
        now_us = NOW_US + number
        alike = reader.alike([message]) if reader.header is not None else []
        if alike:
            assert (reader.header, alike[0]) == parse(message, now_us=now_us)
            continue
        try:
            told = parse(message, now_us=now_us)
        except DecodeError:
            with pytest.raises(DecodeError):
                reader.read(message, now_us)
        else:
            assert reader.read(message, now_us) == told


def test_messages_of_one_sender_are_alike_until_one_differs() -> None:
    reader = MessageReader(MOST)
    body = b"\x00\x53\x75\xa0\x04"
    reader.read(LEADS[1] + body + b"zero", NOW_US)
    assert reader.header is None  # perhaps no two of this sender are alike
    header, content = reader.read(LEADS[1] + body + b"one.", NOW_US)
    assert content == b"one."
    same = [LEADS[1] + body + each for each in (b"two.", b"thre")]
    assert reader.alike([*same, LEADS[1] + b"\x00\x53\x75\xa0\x05five.", *same]) == [
        b"two.",
        b"thre",
    ]
    assert reader.header is header


def test_of_messages_that_differ_in_id_and_time_alone_nothing_else_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def sent(
        message_id: bytes, created: bytes, subject: bytes = b"s3", group: bytes = b"g1"
    ) -> bytes:
        fields = b"\xa1\x04" + message_id + b"\x40\x40\xa1\x02" + subject
        fields += b"\x40" * 5 + b"\x83" + created + b"\xa1\x02" + group
        return b"\x00\x53\x73\xc0" + bytes([len(fields) + 1, 11]) + fields + BODIES[2]

    reader = MessageReader(MOST)
    for number in range(2):
        reader.read(sent(b"ID-%d" % number, bytes(8)), NOW_US)
    others = [
        sent(b"ID-2", b"\x00\x00\x01" + bytes(5)),
        sent(b"ID-3", b"\xff" * 8),
        sent(b"\xc3\xa4-4", b"\x7f" * 8),  # beyond the year 9999
    ]
    told = [parse(each, now_us=NOW_US) for each in others]
    with monkeypatch.context() as patched:
        patched.setattr("broker_shim.listener_1_0.messages.message_reader.located", None)
        assert [reader.read(each, NOW_US) for each in others] == told
    for wrong in (sent(b"\xff\xff\xff\xff", bytes(8)), others[0][:-1] + b"\xff"):
        with pytest.raises(DecodeError):
            reader.read(wrong, NOW_US)
    for other in (sent(b"ID-5", bytes(8), b"s4"), sent(b"ID-6", bytes(8), group=b"g2")):
        reader = MessageReader(MOST)
        for number in range(2):
            reader.read(sent(b"ID-%d" % number, bytes(8)), NOW_US)
        assert reader.read(other, NOW_US) == parse(other, now_us=NOW_US)


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(LEADS[2] + BODIES[0], id="one that expires"),
        pytest.param(LEADS[1] + BODIES[0] + FOOTERS[1], id="one with a footer"),
        pytest.param(LEADS[1] + BODIES[4], id="a number"),
    ],
)
def test_what_the_lead_does_not_say_all_of_is_read_each_time(message: bytes) -> None:
    reader = MessageReader(MOST)
    reader.read(message, NOW_US)
    reader.read(message, NOW_US)
    assert reader.header is None
    assert reader.alike([message]) == []


def test_text_that_is_not_utf_8_is_not_alike() -> None:
    reader = MessageReader(MOST)
    reader.read(b"\x00\x53\x77\xa1\x02ok", NOW_US)
    assert reader.alike([b"\x00\x53\x77\xa1\x02\xc3\xa4", b"\x00\x53\x77\xa1\x02\xc3("]) == [
        b"\xc3\xa4"
    ]
