"""Names that selectors look up, and the values that AMQP messages of every kind give them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_shim.listener_1_0.messages import common_header
from broker_shim.listener_1_0.messages.common_header import AmqpCommonHeader
from broker_shim.listener_1_0.messages.message import parse
from broker_shim.selectors import parse as selector
from sparkstore.core.records import MessageHeader
from tests.support.work import lines_of

ID = UUID("12345678-1234-5678-1234-567812345678")


def header_of(message: proton.Message) -> AmqpCommonHeader:
    return AmqpCommonHeader(parse(bytes(message.encode()), now_us=0)[0])


EVERY_KIND: list[tuple[Any, Any]] = [
    (None, None),
    (True, True),
    (False, False),
    (proton.ubyte(255), 255),
    (proton.ushort(65_535), 65_535),
    (proton.uint(1 << 31), 1 << 31),
    (proton.ulong((1 << 64) - 1), (1 << 64) - 1),
    (proton.byte(-128), -128),
    (proton.short(-1), -1),
    (proton.int32(-(1 << 31)), -(1 << 31)),
    (7, 7),
    (proton.float32(0.5), 0.5),
    (2.5, 2.5),
    (proton.char("é"), "é"),
    (proton.timestamp(1_700_000_000_000), 1_700_000_000_000),
    (ID, str(ID)),
    (b"\x00\xff", None),
    ("text", "text"),
    (proton.symbol("symbol"), "symbol"),
    (proton.decimal64(1), None),
    ([1, 2], None),
    ({"deep": {"er": [1]}}, None),
    (proton.Described(proton.symbol("x"), 1), None),
]


@pytest.mark.parametrize(("given", "expected"), EVERY_KIND, ids=lambda each: repr(each)[:30])
def test_a_property_of_every_amqp_kind_is_itself_or_null(given: Any, expected: Any) -> None:
    message = proton.Message(body="x" * 300)
    message.properties = {"before": "b", "p": given, "after": 1}
    header = header_of(message)
    assert header.get("p") == expected
    assert type(header.get("p")) in (type(expected), *type(expected).__subclasses__())
    assert (header.get("before"), header.get("after"), header.get("none")) == ("b", 1, None)


def test_numbers_stay_numbers_and_texts_texts() -> None:
    header = header_of(proton.Message(properties={"n": 10, "s": "10"}))
    assert selector("n > 9 AND n = 10.0 AND s = '10'").fits(header.get)
    assert not selector("s = 10").fits(header.get)
    assert not selector("s > 9").fits(header.get)


def test_header_fields_by_their_jms_and_their_amqp_names() -> None:
    message = proton.Message(
        durable=True,
        priority=7,
        ttl=5.0,
        id="ID:1",
        user_id=b"me",
        address="to",
        subject="order",
        reply_to="back",
        correlation_id="c",
        content_type="text/plain",
        creation_time=1.5,
        group_id="g",
        group_sequence=3,
    )
    header = header_of(message)
    names = {
        "JMSDeliveryMode": "PERSISTENT",
        "JMSPriority": 7,
        "JMSMessageID": "ID:1",
        "JMSCorrelationID": "c",
        "JMSTimestamp": 1_500,
        "JMSType": "order",
        "JMSXUserID": "me",
        "JMSXGroupID": "g",
        "JMSXGroupSeq": 3,
        "amqp.durable": True,
        "amqp.priority": 7,
        "amqp.ttl": 5_000,
        "amqp.message_id": "ID:1",
        "amqp.to": "to",
        "amqp.subject": "order",
        "amqp.reply_to": "back",
        "amqp.content_type": "text/plain",
        "amqp.creation_time": 1_500,
        "amqp.group_id": "g",
    }
    assert {name: header.get(name) for name in names} == names


def test_what_a_message_does_not_say_has_amqps_default_or_is_null() -> None:
    header = header_of(proton.Message())
    assert (header.get("JMSPriority"), header.get("JMSDeliveryMode")) == (4, "NON_PERSISTENT")
    assert header.get("amqp.durable") is False
    for name in ("JMSMessageID", "JMSType", "JMSXGroupID", "amqp.subject", "amqp.nothing"):
        assert header.get(name) is None


@pytest.mark.parametrize(
    ("given", "message_id", "correlation_id"),
    [
        ("plain", "ID:AMQP_NO_PREFIX:plain", "plain"),
        ("ID:7", "ID:7", "ID:7"),
        (proton.ulong(7), "ID:AMQP_ULONG:7", "ID:AMQP_ULONG:7"),
        (ID, f"ID:AMQP_UUID:{ID}", f"ID:AMQP_UUID:{ID}"),
        (b"\xab\x01", "ID:AMQP_BINARY:AB01", "ID:AMQP_BINARY:AB01"),
    ],
)
def test_ids_are_written_as_qpid_jms_writes_them(
    given: Any, message_id: str, correlation_id: str
) -> None:
    header = header_of(proton.Message(id=given, correlation_id=given))
    assert header.get("JMSMessageID") == message_id
    assert header.get("JMSCorrelationID") == correlation_id


def test_a_message_of_another_protocol_has_what_its_columns_have() -> None:
    columns = MessageHeader(
        priority=5, subject="s", created_at=2_000_000, properties=(("n", "1"), ("k", "v"))
    )
    header = AmqpCommonHeader(columns)
    assert (header.get("JMSPriority"), header.get("JMSType")) == (5, "s")
    assert (header.get("JMSTimestamp"), header.get("n"), header.get("k")) == (2_000, "1", "v")


def test_what_amqp_1_0_has_no_field_for_is_known_by_its_column() -> None:
    header = AmqpCommonHeader(MessageHeader(app_id="ours", message_type="data"))
    assert selector("amqp.app_id = 'ours' AND amqp.message_type = 'data'").fits(header.get)
    assert header_of(proton.Message("x")).get("amqp.message_type") == "text"
    assert header_of(proton.Message("x")).get("amqp.app_id") is None


def test_a_damaged_header_column_selects_nothing_and_raises_nothing() -> None:
    columns = parse(bytes(proton.Message(properties={"n": 1}).encode()), now_us=0)[0]
    assert columns.header is not None
    for cut in range(len(columns.header)):
        assert AmqpCommonHeader(columns._replace(header=columns.header[:cut])).get("n") in (None, 1)


@given(
    st.dictionaries(
        st.text(max_size=300),
        st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(),
        max_size=20,
    )
)
def test_any_property_is_found_by_its_name_and_no_other(properties: dict[str, Any]) -> None:
    header = header_of(proton.Message(properties=properties))
    for name, value in properties.items():
        if name and not name.startswith(("JMS", "amqp.")):
            found = header.get(name)
            assert found == value or (found != found and value != value)  # noqa: PLR0124  # NaN
    assert header.get("x" * 301) is None


def test_a_header_whose_descriptors_are_spelt_in_full_is_read_all_the_same() -> None:
    name = b"amqp:application-properties:map"
    spelt = b"\x00\xa3" + bytes([len(name)]) + name + b"\xc1\x06\x02\xa1\x01n\x54\x07"
    header = AmqpCommonHeader(parse(spelt + b"\x00\x53\x77\x40", now_us=0)[0])
    assert header.get("n") == 7


def test_a_selector_of_many_names_looks_through_a_header_once() -> None:
    message = proton.Message(properties={f"p{n}": n for n in range(1_000)})
    common = header_of(message)
    names = [f"p{n}" for n in range(1_000)] + [f"none{n}" for n in range(1_000)]
    assert lines_of(lambda: [common.get(name) for name in names]) < 100 * len(names)
    assert [common.get(name) for name in names] == [*range(1_000), *[None] * 1_000]


def test_a_value_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []
    read = common_header.scalar_at
    monkeypatch.setattr(common_header, "scalar_at", lambda *at: decoded.append(1) or read(*at))
    common = header_of(proton.Message(properties={f"p{n}": "x" * 1_000 for n in range(9)}))
    for n in [*range(9)] * 50:
        assert common.get(f"p{n}") == "x" * 1_000
    assert len(decoded) <= 9
