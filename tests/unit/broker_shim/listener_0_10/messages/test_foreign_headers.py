"""A message that came by one protocol and goes by the other: properties keep values and types."""

from __future__ import annotations

from uuid import UUID

import proton

from broker_shim.amqp_0_10.primitives import Datetime, Int8, Int32, Uint64, Utf32Char
from broker_shim.amqp_0_10.structs import (
    MessageDeliveryProperties,
    MessageProperties,
    MessageReplyTo,
)
from broker_shim.framing.segments import HeaderSegment
from broker_shim.framing.values import TypedArray
from broker_shim.listener_0_10.messages.message_headers import read_header, written_header
from broker_shim.listener_1_0.messages.common_header import AmqpCommonHeader
from broker_shim.listener_1_0.messages.message import framing, parse
from broker_shim.selectors import parse as selector

BODY = "größe".encode()


def older(**said: object) -> HeaderSegment:
    delivery = MessageDeliveryProperties(routing_key="q", delivery_mode=2, priority=7)
    return HeaderSegment.of(delivery, MessageProperties(**said))  # type: ignore[arg-type]


def as_1_0(header: HeaderSegment) -> proton.Message:
    stored = read_header(header, "amq.topic", len(BODY))
    around = framing(stored, delivery_count=0, now_us=0)
    message = proton.Message()
    message.decode(around.lead + BODY + around.tail)
    return message


HEADERS_OF_0_10 = {
    "text": "x",
    "tiny": Int8(-1),
    "int": Int32(7),
    "long": 1 << 40,
    "ulong": Uint64(1 << 63),
    "flag": True,
    "half": 0.5,
    "letter": Utf32Char("ß"),
    "bytes": b"\x00\xff",
    "when": Datetime(10),
    "id": UUID(int=5),
    "array": TypedArray("uint8", (1,)),
    "map": {"not": "kept"},
}


def test_a_message_of_0_10_has_its_properties_over_1_0() -> None:
    message = as_1_0(
        older(
            message_id=UUID(int=9),
            correlation_id=b"corr",
            user_id=b"guest",
            app_id=b"app",
            content_type="text/plain",
            reply_to=MessageReplyTo("amq.direct", "answers"),
            application_headers=HEADERS_OF_0_10,
        )
    )
    assert (message.id, message.correlation_id, message.user_id) == (UUID(int=9), "corr", b"guest")
    assert (message.durable, message.priority, message.content_type) == (True, 7, "text/plain")
    assert (message.address, message.reply_to) == ("amq.topic/q", "amq.direct/answers")
    assert bytes(message.body) == BODY
    told = {name: (type(each).__name__, each) for name, each in message.properties.items()}
    assert told == {
        "text": ("str", "x"),
        "tiny": ("byte", -1),
        "int": ("int32", 7),
        "long": ("int", 1 << 40),
        "ulong": ("ulong", 1 << 63),
        "flag": ("bool", True),
        "half": ("float", 0.5),
        "letter": ("char", "ß"),
        "bytes": ("memoryview", b"\x00\xff"),
        "when": ("timestamp", 10_000),
        "id": ("UUID", UUID(int=5)),
        "x-amqp-0-10.app-id": ("str", "app"),
    }


def test_a_message_of_1_0_has_its_properties_over_0_10() -> None:
    message = proton.Message("größe", id="an id", correlation_id="corr", durable=True)
    message.subject, message.reply_to, message.user_id = "sub", "answers", b"guest"
    message.properties = {
        "text": "x",
        "int": proton.int32(7),
        "ulong": proton.ulong(1 << 63),
        "letter": proton.char("ß"),
        "when": proton.timestamp(10_000),
        "half": 0.5,
        "nothing": None,
    }
    stored, body = parse(message.encode(), now_us=0)
    header = HeaderSegment(written_header(stored, is_redelivered=True))
    assert body == BODY
    assert (header.delivery.redelivered, header.delivery.delivery_mode) == (True, 2)
    said = header.message
    assert (said.message_id, said.correlation_id, said.user_id) == (None, b"corr", b"guest")
    assert (said.content_type, said.reply_to) == ("text/plain", MessageReplyTo(None, "answers"))
    assert said.application_headers is not None
    told = {name: (type(each).__name__, each) for name, each in said.application_headers.items()}
    assert told == {
        "text": ("str", "x"),
        "int": ("Int32", 7),
        "ulong": ("Uint64", 1 << 63),
        "letter": ("Utf32Char", "ß"),
        "when": ("Datetime", 10),
        "half": ("float", 0.5),
        "qpid.subject": ("str", "sub"),
    }


def test_a_selector_sees_numbers_of_either_protocol_as_numbers() -> None:
    stored = read_header(older(application_headers={"n": Int32(7)}), "", 0)
    view = AmqpCommonHeader(stored)
    assert selector("n > 6 AND n < 8 AND JMSPriority = 7").fits(view.get)
    assert not selector("n = '7'").fits(view.get)


def test_what_a_0_10_client_gets_of_its_own_protocol_is_what_was_sent() -> None:
    sent = older(application_headers={"map": {"a": [1, {"b": Int8(2)}]}})
    stored = read_header(sent, "amq.topic", 3)
    found = HeaderSegment(written_header(stored, is_redelivered=False))
    assert found.message == sent.message
    assert found.delivery.exchange == "amq.topic"
