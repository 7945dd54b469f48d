"""AMQP messages in bytes: proton encodes, we cut and put together; pure."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proton import (
    Data,
    Described,
    Message,
    char,
    float32,
    int32,
    symbol,
    timestamp,
    ubyte,
    uint,
    ulong,
)

from broker_shim.listener_1_0.messages.message import framing, header_sections, parse
from broker_shim.protocol_1_0.codec.errors import DecodeError
from broker_shim.protocol_1_0.codec.sections import BODY
from sparkstore.core.records import MessageHeader

NOW_US = 1_700_000_000_000_000
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=300)
NAMES = st.text(st.characters(codec="ascii", min_codepoint=33), min_size=1, max_size=10)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    TEXT,
    st.binary(max_size=300),
    st.uuids(),
    st.integers(-(2**62), 2**62).map(timestamp),
)
BODIES = st.one_of(
    SCALARS, st.lists(SCALARS, max_size=5), st.dictionaries(TEXT, SCALARS, max_size=5)
)


def outgoing(header: MessageHeader, body: bytes, *, delivery_count: int, now_us: int) -> bytes:
    """The whole message as it is sent on."""
    around = framing(header, delivery_count=delivery_count, now_us=now_us)
    return b"".join((around.lead, body, around.tail))


def restored(header: MessageHeader, body: bytes) -> bytes:
    """The message as it came from the wire."""
    rest, sections = header.header or b"", header_sections(header)
    of_body = [end for code, _start, _value, end in sections if code in BODY]
    footer = [start for code, start, _value, _end in sections if code == 0x78]
    place = [*of_body, *footer, len(rest)][0]
    return rest[:place] + body + rest[place:]


@st.composite
def messages(draw: st.DrawFn) -> Message:
    message = Message(body=draw(BODIES), inferred=draw(st.booleans()))
    message.durable = draw(st.booleans())
    message.priority = draw(st.integers(0, 255))
    message.delivery_count = draw(st.integers(0, 5))
    message.properties = draw(st.none() | st.dictionaries(TEXT, SCALARS, max_size=5))
    message.annotations = draw(
        st.none() | st.dictionaries(NAMES.map(symbol), SCALARS, min_size=1, max_size=3)
    )
    message.id = draw(st.none() | TEXT | st.uuids() | st.integers(0, 2**64 - 1) | st.binary())
    message.correlation_id = draw(st.none() | TEXT)
    message.subject = draw(st.none() | TEXT)
    message.user_id = draw(st.binary(max_size=20))
    return message


@given(messages())
def test_a_message_is_put_together_from_its_two_pieces_byte_for_byte(message: Message) -> None:
    encoded = bytes(message.encode())
    header, body = parse(encoded, now_us=NOW_US)
    assert restored(header, body) == encoded
    assert outgoing(header, body, delivery_count=0, now_us=NOW_US) == encoded
    assert (header.header_bytes, header.body_bytes) == (len(header.header or b""), len(body))


@given(messages(), st.integers(1, 9))
def test_what_goes_out_again_differs_only_in_its_header(message: Message, failures: int) -> None:
    header, body = parse(bytes(message.encode()), now_us=NOW_US)
    again = Message()
    again.decode(outgoing(header, body, delivery_count=failures, now_us=NOW_US))
    assert again.delivery_count == message.delivery_count + failures
    assert not again.first_acquirer
    for name in ("durable", "priority", "properties", "annotations", "id", "subject", "body"):
        assert getattr(again, name) == getattr(message, name), name


@settings(max_examples=15, deadline=None)
@given(messages())
def test_a_message_cut_short_is_an_error_or_a_shorter_message(message: Message) -> None:
    encoded = bytes(message.encode())
    for end in range(len(encoded)):
        try:
            header, body = parse(encoded[:end], now_us=NOW_US)
        except DecodeError:
            continue
        assert restored(header, body) == encoded[:end]


@given(st.binary(max_size=200))
def test_rubbish_is_an_error_and_nothing_else(rubbish: bytes) -> None:
    try:
        header, body = parse(rubbish, now_us=NOW_US)
    except DecodeError:
        return
    assert restored(header, body) == rubbish


@given(messages(), st.data())
def test_a_flipped_byte_is_an_error_or_another_message(
    message: Message, data: st.DataObject
) -> None:
    encoded = bytearray(message.encode())
    if encoded:
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    try:
        header, body = parse(bytes(encoded), now_us=NOW_US)
    except DecodeError:
        return
    assert restored(header, body) == bytes(encoded)


@pytest.mark.parametrize(
    ("body", "inferred", "message_type", "column"),
    [
        (b"\x00\x01", True, "data", b"\x00\x01"),
        (b"x" * 300, True, "data", b"x" * 300),
        (b"", True, "data", b""),
        (b"\x00\x01", False, "binary", b"\x00\x01"),
        ("täglich", False, "text", "täglich".encode()),
        (5, False, "amqp", b"\x00Sw\x55\x05"),
        (None, False, "amqp", b""),
    ],
)
def test_the_body_column_is_what_sql_can_read(
    body: object, inferred: bool, message_type: str, column: bytes
) -> None:
    header, found = parse(bytes(Message(body=body, inferred=inferred).encode()), now_us=NOW_US)
    assert (header.message_type, found) == (message_type, column)


PROPERTIES: list[tuple[str, Any, str | None]] = [
    ("text", "é", "é"),
    ("yes", True, "true"),
    ("none", None, None),
    ("small", int32(-3), "-3"),
    ("byte", ubyte(200), "200"),
    ("big", ulong(2**64 - 1), str(2**64 - 1)),
    ("float", float32(0.5), "0.5"),
    ("char", char("x"), "x"),
    ("when", timestamp(5), "1970-01-01T00:00:00.005+00:00"),
    ("raw", b"\xff", "0xff"),
    ("id", UUID(int=2), str(UUID(int=2))),
]


def test_typed_columns_are_filled() -> None:
    message = Message(
        id=UUID(int=1),
        user_id=b"guest",
        address="orders",
        subject="new",
        reply_to="answers",
        correlation_id=7,
        content_type=symbol("text/plain"),
        content_encoding=symbol("gzip"),
        expiry_time=1_800_000_000.0,
        creation_time=1_600_000_000.5,
        group_id="g",
        durable=True,
        priority=200,
        properties={name: value for name, value, _text in PROPERTIES},
    )
    header, _body = parse(bytes(message.encode()), now_us=NOW_US)
    assert header._replace(header=None, header_bytes=0) == MessageHeader(
        protocol="amqp-1.0",
        durable=True,
        priority=9,
        created_at=1_600_000_000_500_000,
        expires_at=1_800_000_000_000_000,
        content_type="text/plain",
        content_encoding="gzip",
        correlation_id="7",
        reply_to="answers",
        subject="new",
        to="orders",
        user_id="guest",
        message_type="amqp",
        amqp_message_id=str(UUID(int=1)),
        group_id="g",
        properties=tuple((name, text) for name, _value, text in PROPERTIES if text is not None),
    )


def test_the_earlier_of_time_to_live_and_absolute_expiry_counts() -> None:
    message = Message(ttl=10.0, expiry_time=NOW_US / 1e6 + 5)
    assert parse(bytes(message.encode()), now_us=NOW_US)[0].expires_at == NOW_US + 5_000_000
    message.expiry_time = NOW_US / 1e6 + 50
    assert parse(bytes(message.encode()), now_us=NOW_US)[0].expires_at == NOW_US + 10_000_000


def test_a_time_to_live_shrinks_by_the_time_it_waited() -> None:
    header, body = parse(bytes(Message(ttl=10.0).encode()), now_us=NOW_US)
    again = Message()
    again.decode(outgoing(header, body, delivery_count=0, now_us=NOW_US + 4_000_000))
    assert again.ttl == 6.0


@pytest.mark.parametrize("at_ms", [2**62, -(2**62)])
def test_a_time_that_no_column_can_show_is_left_out(at_ms: int) -> None:
    encoded = bytes(Message(creation_time=1.0).encode())
    mark = encoded.index(b"\x83") + 1
    hostile = encoded[:mark] + at_ms.to_bytes(8, "big", signed=True) + encoded[mark + 8 :]
    assert parse(hostile, now_us=NOW_US)[0].created_at is None


@pytest.mark.parametrize(
    "encoded",
    [
        b"\x00\x53\x75\xa0\x01x" * 2,  # two data sections
        b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x75\xb0\x00\x00\x00\x01x",  # long forms
        b"\x00\xa3\x10amqp:data:binary\xa0\x01x",  # descriptor by name
        b"\x00\x53\x75\xa0\x01x\x00\x53\x78\xc1\x01\x00",  # footer
        b"\x00\x53\x77\x00\x53\x05\x40",  # a described value
    ],
    ids=["two data", "long", "named", "footer", "described"],
)
def test_other_ways_to_encode_come_back_as_they_were(encoded: bytes) -> None:
    header, body = parse(encoded, now_us=NOW_US)
    assert restored(header, body) == encoded
    assert outgoing(header, body, delivery_count=0, now_us=NOW_US) == encoded


@pytest.mark.parametrize(
    "encoded",
    [
        b"\x00\x53\x75\xa0\x01x\x00\x53\x70\x45",  # header after body
        b"\x00\x53\x70\x45\x00\x53\x70\x45",  # two headers
        b"\x00\x53\x75\xa0\x01x\x00\x53\x77\x40",  # two kinds of body
        b"\x00\x53\x60\x45",  # no such section
        b"\x00\x53\x74\xc1\x03\x01\xa1\x00",  # a key without a value
        b"\x00\x53\x77\xa1\x01\xff",  # not UTF-8
        b"\x00\x53\x77" + b"\x00\x53\x01" * 50 + b"\x40",  # too many descriptors
        b"\x00\x53\x77\xb1\xff\xff\xff\xff",  # 4 GiB of text
    ],
)
def test_what_the_specification_forbids_is_an_error(encoded: bytes) -> None:
    with pytest.raises(DecodeError):
        parse(encoded, now_us=NOW_US)


def section(code: int, value: object) -> bytes:
    data = Data()
    data.put_object(Described(ulong(code), value))
    return bytes(data.encode())


WRONG_SECTIONS = {
    "durable is text": (0x70, ["yes"]),
    "priority is a uint": (0x70, [None, uint(7)]),
    "ttl is an int": (0x70, [None, None, int32(5)]),
    "delivery-count is text": (0x70, [None, None, None, None, "0"]),
    "a header of six fields": (0x70, [None] * 5 + ["x"]),
    "the header is a map": (0x70, {symbol("durable"): True}),
    "message-id is an int": (0x73, [int32(5)]),
    "message-id is a list": (0x73, [["a"]]),
    "subject is a number": (0x73, [None, None, None, int32(5)]),
    "content-type is a string": (0x73, [None] * 6 + ["text/plain"]),
    "creation-time is a long": (0x73, [None] * 9 + [5]),
    "an application property without a name": (0x74, {None: "x"}),
    "an application property with a number for a name": (0x74, {int32(1): "x"}),
    "application properties are a list": (0x74, ["a", "b"]),
    "an annotation with a string for a name": (0x72, {"a": "b"}),
    "annotations are a list": (0x72, [symbol("a"), "b"]),
}


@pytest.mark.parametrize(("code", "value"), WRONG_SECTIONS.values(), ids=WRONG_SECTIONS)
def test_a_field_of_a_wrong_type_is_an_error(code: int, value: object) -> None:
    """Consumers that read strictly would lose their link over it, again and again."""
    with pytest.raises(DecodeError):
        parse(section(code, value) + section(0x77, "body"), now_us=NOW_US)


@pytest.mark.parametrize(
    "encoded",
    [
        b"\x00\x53\x72\xc1\x04\x01\xa3\x01a\x00\x53\x77\x40",  # a key without a value
        b"\x00\x53\x72\xc1\x05\x04\xa3\x01a\x40\x00\x53\x77\x40",  # a count that is wrong
        b"\x00\x53\x77\x40\x00\x53\x78\xc1\x03\x02\x54\x01",  # a footer's key is a number
        b"\x00\x53\x75\xa1\x01a",  # data that is text
        b"\x00\x53\x75\xa0\x01a\x00\x53\x75\xa1\x01a",  # the second of two data is
        b"\x00\x53\x76\xc1\x01\x00",  # a sequence that is a map
    ],
)
def test_annotations_and_bodies_of_a_wrong_form_are_an_error(encoded: bytes) -> None:
    with pytest.raises(DecodeError):
        parse(encoded, now_us=NOW_US)


@pytest.mark.parametrize("code", [0x70, 0x72, 0x73, 0x74, 0x78])
@pytest.mark.parametrize("empty", [b"\x40", b"\xc1\x01\x00", b"\xd1\0\0\0\4\0\0\0\0", b"\x45"])
def test_a_section_with_nothing_in_it_is_one_if_its_form_is_right(code: int, empty: bytes) -> None:
    body = b"\x00\x53\x77\x40"
    part = bytes((0, 0x53, code)) + empty
    encoded = body + part if code == 0x78 else part + body
    is_list = code in {0x70, 0x73}
    if empty == b"\x40" or is_list == (empty == b"\x45"):
        assert restored(*parse(encoded, now_us=NOW_US)) == encoded
    else:
        with pytest.raises(DecodeError):
            parse(encoded, now_us=NOW_US)


def test_delivery_annotations_go_no_further() -> None:
    message = Message(body="x", instructions={symbol("for"): "you"}, subject="s")
    header, body = parse(bytes(message.encode()), now_us=NOW_US)
    again = Message()
    again.decode(outgoing(header, body, delivery_count=0, now_us=NOW_US))
    assert (again.instructions, again.subject, again.body) == (None, "s", "x")


@pytest.mark.parametrize("failures", [0, 1])
def test_a_stored_header_section_that_is_refused_today_does_not_hold_its_message_back(
    failures: int,
) -> None:
    """An earlier release took any byte for a boolean, and a root may have such a message."""
    came = b"\x00\x53\x70\xc0\x03\x01\x56\x07"  # durable is neither true nor false
    with pytest.raises(DecodeError):
        parse(came + b"\x00\x53\x77\xa1\x01x", now_us=NOW_US)
    header, body = parse(b"\x00\x53\x77\xa1\x01x", now_us=NOW_US)
    assert header.header is not None
    stored = header._replace(header=came + header.header, header_bytes=len(came + header.header))
    sent = outgoing(stored, body, delivery_count=failures, now_us=NOW_US)
    assert sent.endswith(b"\x00\x53\x77\xa1\x01x")
    assert sent.startswith(came) is (not failures)


def test_a_message_of_another_protocol_goes_out_as_one_data_section() -> None:
    again = Message()
    header = MessageHeader(durable=True, priority=7, body_bytes=5)
    again.decode(outgoing(header, b"bytes", delivery_count=2, now_us=NOW_US))
    body: Any = again.body
    assert (bytes(body), again.durable, again.priority) == (b"bytes", True, 7)
    assert (again.delivery_count, again.inferred) == (2, True)
