"""Generated code: what the tables give, and all that the specifications name."""

from __future__ import annotations

from collections import Counter
from enum import IntEnum

import pytest

from broker_shim import generate
from broker_shim.amqp_0_10 import definitions
from broker_shim.amqp_0_10.commands import COMMANDS, DtxStart, FileQos, MessageTransfer
from broker_shim.amqp_0_10.controls import CONTROLS, ConnectionStart
from broker_shim.amqp_0_10.primitives import ENCODINGS, UNCODED
from broker_shim.amqp_0_10.structs import (
    STRUCTS,
    DtxXid,
    MessageDeliveryProperties,
    MessageProperties,
    MessageReplyTo,
    SessionHeader,
    Struct,
)
from tests.support.checkout import CHECKOUT


@pytest.mark.parametrize("protocol", generate.PROTOCOLS)
def test_generating_again_changes_nothing(protocol: str) -> None:
    folder = CHECKOUT / "broker_shim" / protocol
    assert {path.name: path.read_text() for path in folder.glob("*.py")} == generate.modules(
        protocol
    )


def test_every_class_of_amqp_0_10_has_all_of_its_controls_and_commands() -> None:
    controls = Counter(each.NAME.split(".")[0] for each in CONTROLS.values())
    commands = Counter(each.NAME.split(".")[0] for each in COMMANDS.values())
    assert controls == {"connection": 12, "session": 13}
    assert commands == {
        "execution": 3,
        "message": 12,
        "tx": 3,
        "dtx": 10,
        "exchange": 6,
        "queue": 4,
        "file": 13,
        "stream": 8,
    }


def test_every_struct_of_amqp_0_10_is_there_and_those_without_a_code_stand_in_no_table() -> None:
    everything = Struct.__args__
    assert len(everything) == 17
    assert set(everything) - set(STRUCTS.values()) == {
        each for each in everything if each.CODE == 0
    }
    assert {each.NAME for each in everything if each.CODE == 0} == {
        "session.header",
        "session.command-fragment",
        "message.reply-to",
    }


def test_every_domain_of_amqp_0_10_is_a_choice_or_a_name_for_a_type() -> None:
    choices = [
        each
        for each in vars(definitions).values()
        if isinstance(each, type) and issubclass(each, IntEnum) and each is not IntEnum
    ]
    assert len(choices) + len(definitions.ALIASES) == 25
    assert definitions.ALIASES["session.commands"] == "sequence-set"
    assert definitions.ExecutionErrorCode.RESOURCE_LOCKED == 405


def test_all_45_types_of_amqp_0_10_are_there_and_three_have_no_code() -> None:
    assert len(ENCODINGS) == 45
    assert set(UNCODED) == {"sequence-no", "byte-ranges", "sequence-set"}
    assert {name for name, rows in ENCODINGS.items() if not rows} == set(UNCODED)


def test_a_class_says_what_a_codec_has_to_know_of_it() -> None:
    assert (MessageTransfer.CODE, MessageTransfer.PACK, MessageTransfer.BODY) == (0x0401, 2, True)
    assert MessageTransfer.HEADER == (
        "message.delivery-properties",
        "message.fragment-properties",
        "message.message-properties",
    )
    assert (DtxStart.RESULT, FileQos.RESULT) == ("dtx.xa-result", "")
    assert (SessionHeader.SIZE, SessionHeader.PACK) == (1, 1)
    assert (DtxXid.CODE, DtxXid.SIZE) == (0x0604, 4)
    assert (MessageReplyTo.CODE, MessageReplyTo.SIZE) == (0, 2)
    assert ConnectionStart.FIELDS[1] == ("mechanisms", "array", True, None)


def test_a_word_of_python_is_no_attribute() -> None:
    assert FileQos(global_=True).global_


def test_what_a_sender_need_not_say_has_the_default_of_the_specification() -> None:
    said = MessageDeliveryProperties()
    assert (said.priority, said.delivery_mode, said.ttl) == (4, 1, None)
    assert MessageProperties().application_headers is None
