"""A message with another body or other properties, in its protocol, else as its sender wrote it."""

from __future__ import annotations

from uuid import UUID

import proton
import pytest

from broker_shim.amqp_0_10.structs import MessageDeliveryProperties, MessageProperties
from broker_shim.edited_messages import edited
from broker_shim.framing.segments import HeaderSegment
from broker_shim.listener_0_10.messages.message_headers import read_header
from broker_shim.listener_1_0.messages.message import framing, parse
from sparkstore.content.edits import MessageEdit
from sparkstore.core.records import MessageHeader
from sparkstore.errors import InvalidRequest

SENT = proton.Message(
    body=b"old",
    inferred=True,
    subject="eggs",
    id="m1",
    annotations={proton.symbol("x-opt-a"): 1},
    properties={"n": proton.int32(3), "u": UUID(int=7), "flag": True, "s": "text"},
    ttl=5,
)


def after(message: proton.Message, edit: MessageEdit) -> proton.Message:
    """What a client gets of an edited message."""
    header, body = edited(*parse(bytes(message.encode()), now_us=0), edit)
    assert (header.expires_at, header.body_bytes) == (None, len(body))
    around = framing(header, delivery_count=0, now_us=0)
    got = proton.Message()
    got.decode(around.lead + body + around.tail)
    return got


def test_what_is_not_edited_stays_as_it_was() -> None:
    got = after(SENT, MessageEdit(b"new"))
    assert (got.body, got.subject, got.id) == (b"new", "eggs", "m1")
    assert (got.annotations, got.properties) == (SENT.annotations, SENT.properties)
    got = after(SENT, MessageEdit(None, {"s": "other"}))
    assert (got.body, got.properties["s"]) == (b"old", "other")


def test_a_property_keeps_its_type_and_a_new_one_is_a_string() -> None:
    told = {"n": "4", "u": str(UUID(int=8)), "flag": "false", "new": "5"}
    got = after(SENT, MessageEdit(None, told, frozenset({"s"})))
    assert got.properties == {"n": 4, "u": UUID(int=8), "flag": False, "new": "5"}
    assert isinstance(got.properties["n"], proton.int32)


def test_a_message_without_properties_gets_some_and_one_may_lose_all() -> None:
    assert after(proton.Message(body="x"), MessageEdit(None, {"a": "b"})).properties == {"a": "b"}
    one = proton.Message(body="x", properties={"a": "b"})
    assert not after(one, MessageEdit(None, {}, frozenset({"a"}))).properties


@pytest.mark.parametrize(
    ("body", "new"),
    [("text", "ümlaut"), (b"bytes", b"\xff"), ([1, 2], b"data"), (None, b"data")],
)
def test_a_body_stays_of_its_kind(body: object, new: str | bytes) -> None:
    told = new.encode() if isinstance(new, str) else new
    assert after(proton.Message(body=body), MessageEdit(told)).body == new


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (MessageEdit(None, {"n": "many"}), "^property n=many: its value is of type int"),
        (MessageEdit(None, {"n": str(1 << 40)}), "none of its protocol"),
        (MessageEdit(None, {"flag": "yes"}), "of type bool"),
        (MessageEdit(None, {}, frozenset({"z"})), "^unset z: the message's properties are n, u"),
    ],
)
def test_an_edit_that_cannot_be_is_refused(edit: MessageEdit, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        after(SENT, edit)


def test_text_that_is_no_utf_8_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="no UTF-8"):
        after(proton.Message(body="text"), MessageEdit(b"\xff"))


def test_a_message_of_0_10_is_edited_in_its_own_form() -> None:
    delivery = MessageDeliveryProperties(routing_key="q")
    message = MessageProperties(application_headers={"n": 3, "s": "text"}, content_length=3)
    header = read_header(HeaderSegment(HeaderSegment.of(delivery, message).payload), "", 3)
    made, body = edited(header, b"old", MessageEdit(b"newer", {"n": "4"}, frozenset({"s"})))
    read = HeaderSegment(made.header).message
    assert (body, made.body_bytes, read.content_length) == (b"newer", 5, 5)
    assert (read.application_headers, made.properties) == ({"n": 4}, (("n", "4"),))


def test_of_a_protocol_that_nobody_knows_only_the_body_is_edited() -> None:
    header = MessageHeader("brokerj", b"\x01", properties=(("a", "1"),))
    assert edited(header, b"old", MessageEdit(b"new"))[1] == b"new"
    with pytest.raises(InvalidRequest, match="properties of a message of brokerj cannot"):
        edited(header, b"old", MessageEdit(None, {"a": "2"}))
    raw, _body = edited(MessageHeader(), b"old", MessageEdit(None, {"a": "2"}))
    assert raw.properties == (("a", "2"),)
