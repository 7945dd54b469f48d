"""Controls, commands and structs of AMQP 0-10 as bytes, and what is refused."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from broker_shim.amqp_0_10.commands import (
    DtxPrepare,
    ExchangeBound,
    MessageAccept,
    MessageTransfer,
    QueueDeclare,
)
from broker_shim.amqp_0_10.controls import (
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    SessionCompleted,
)
from broker_shim.amqp_0_10.primitives import Int32, Str8, Uint64
from broker_shim.amqp_0_10.structs import DtxXid, MessageProperties, MessageReplyTo, SessionHeader
from broker_shim.framing.decoder import MAX_DEPTH
from broker_shim.framing.errors import (
    LocalFramingError,
    MalformedValue,
    RemoteCommandError,
    RemoteFramingError,
)
from broker_shim.framing.methods import (
    encoded_method,
    encoded_structs,
    read_command,
    read_control,
    read_structs,
)
from broker_shim.framing.values import TypedArray, UnknownStruct, UnknownValue

TRANSFER = "0401" + "0101" + "0700" + "0161" + "01" + "00"


def test_a_command_is_what_the_specification_draws() -> None:
    transfer = MessageTransfer("a", 1, 0)
    assert encoded_method(transfer, sync=True).hex() == TRANSFER
    assert read_command(bytes.fromhex(TRANSFER)) == (transfer, True)


def test_a_bit_is_told_by_the_flags_alone() -> None:
    declared = QueueDeclare("q", durable=True)
    assert encoded_method(declared).hex() == "0801" + "0100" + "0900" + "0171"
    assert read_command(encoded_method(declared)) == (declared, False)


def test_a_control_has_no_session_header() -> None:
    assert encoded_method(ConnectionTune(1)).hex() == "0105" + "0100" + "0001"
    completed = SessionCompleted(((0, 3), (5, 5)))
    assert read_control(encoded_method(completed)) == completed


def test_structs_stand_after_size_and_code_as_each_class_says() -> None:
    xid = encoded_method(DtxPrepare(DtxXid(1, b"g", b"b")))
    assert xid.hex()[12:] == "0000000c" + "0604" + "0700" + "00000001" + "0167" + "0162"
    reply_to = encoded_structs([MessageProperties(reply_to=MessageReplyTo("e", "k"))])
    assert reply_to.hex() == "0000000c" + "0403" + "0800" + "0006" + "0300" + "0165" + "016b"


def test_arrays_and_maps_keep_their_types() -> None:
    start = ConnectionStart({"a": Int32(1), "b": [None, True, 1.5]}, ("PLAIN",), ("en_US",))
    assert read_control(encoded_method(start)) == start
    headers = {
        "text": Str8("x"),
        "long": Uint64(1 << 63),
        "id": UUID(int=1),
        "array": TypedArray("uint8", (1, 2)),
        "none": TypedArray("void", ()),
        "unknown": UnknownValue(0x9F, b"?"),
        "struct": UnknownStruct(0x7777, b"abc"),
        "known": DtxXid(1, b"", b""),
        "deep": {"er": {"still": b""}},
    }
    (found,) = read_structs(encoded_structs([MessageProperties(application_headers=headers)]))
    assert isinstance(found, MessageProperties)
    assert found.application_headers == headers
    assert [type(each) for each in found.application_headers.values()] == [
        type(each) for each in headers.values()
    ]


def test_an_unsaid_field_that_the_specification_has_a_default_for_is_that() -> None:
    (found,) = read_structs(bytes.fromhex("00000004" + "0401" + "0000"))
    assert (found.priority, found.delivery_mode) == (4, 1)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("encoded", "code", "says"),
    [
        ("", 503, "no such command"),
        ("04", 503, "no such command"),
        ("04ff0100", 503, "class 4, code 255"),
        ("ff010100", 503, "class 255, code 1"),
        ("0401", 531, "cut short"),
        ("04010200", 531, "a session header of 2 bytes"),
        ("04010102", 531, "flags 0x2"),
        ("04010100" + "0600", 531, "cut short"),
        ("06070100" + "0000", 531, "without xid"),
        ("04010100" + "0601" + "0100", 531, "reserved flags, 0x1"),
        ("04010100" + "0e00" + "0100" + "00", 531, "reserved flags, 0x800"),
        ("04010100" + "0600" + "0700", 531, "accept-mode cannot be 7"),
        ("04010100" + "0700" + "0561" + "0100", 531, "ends after its bytes"),
        ("04010100" + "0700" + "01ff" + "0100", 531, "not utf-8"),
        ("04010100" + "0600" + "010000", 531, "do not fill it"),
        ("04020100" + "0100" + "0004" + "00000000", 531, "half a range"),
        ("06070100" + "0100" + "00000004" + "0603" + "0000", 531, "another struct"),
        ("06070100" + "0100" + "00000004" + "0604" + "0800", 531, "reserved flags"),
    ],
)
def test_a_command_that_is_none_ends_its_session_with_the_right_code(
    encoded: str, code: int, says: str
) -> None:
    with pytest.raises(RemoteCommandError, match=says) as refused:
        read_command(bytes.fromhex(encoded))
    assert refused.value.code == code


def test_a_refusal_names_the_command_and_the_field() -> None:
    with pytest.raises(RemoteCommandError) as refused:
        read_command(bytes.fromhex("06070100" + "0000"))
    assert (refused.value.method_code, refused.value.field_index) == (0x0607, 1)


def test_what_a_client_leaves_out_though_it_must_say_it_is_empty_or_nothing() -> None:
    assert read_command(bytes.fromhex("04010100" + "0000")) == (MessageTransfer(None, 0, 0), False)
    start_ok = read_control(bytes.fromhex("0102" + "0200" + "05504c41494e"))
    assert start_ok == ConnectionStartOk(None, "PLAIN", b"", "")


@pytest.mark.parametrize("encoded", ["", "02", "0263", "ff01", "01050300", "020a0100000300"])
def test_a_control_that_is_none_ends_the_connection(encoded: str) -> None:
    with pytest.raises(RemoteFramingError):
        read_control(bytes.fromhex(encoded))


def nested(kind: int, depth: int) -> bytes:
    """A map, or a list, in a map, in a map."""
    inner = (0).to_bytes(4, "big")
    for _ in range(depth):
        key = b"\x00" if kind == 0xA8 else b""
        item = (1).to_bytes(4, "big") + key + bytes((kind,)) + len(inner).to_bytes(4, "big") + inner
        inner = item
    value = bytes((kind,)) + len(inner).to_bytes(4, "big") + inner
    top = (1).to_bytes(4, "big") + b"\x01k" + value
    fields = len(top).to_bytes(4, "big") + top
    content = b"\x04\x03" + b"\x00\x01" + fields
    return len(content).to_bytes(4, "big") + content


@pytest.mark.parametrize("kind", [0xA8, 0xA9])
def test_a_map_nested_without_end_is_refused(kind: int) -> None:
    assert read_structs(nested(kind, MAX_DEPTH - 6))
    with pytest.raises(MalformedValue, match="nested deeper"):
        read_structs(nested(kind, 5_000))


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        ("00000004" + "ffffffff", "4294967295 items"),
        ("00000008" + "00000002" + "00f0" + "00f0", "one key twice"),
        (
            "0000000e" + "00000001" + "00" + "aa" + "00000005" + "f0" + "00000011"[:6],
            "after its bytes",
        ),
        ("0000000f" + "00000001" + "00" + "aa" + "00000005" + "f0" + "00000011", "17 items"),
        ("0000000f" + "00000001" + "00" + "aa" + "00000005" + "99" + "00000001", "unknown type"),
        ("00000007" + "00000001" + "00" + "08" + "02", "a boolean that is 0x02"),
        ("00000006" + "00000001" + "00" + "b0", "no such type"),
    ],
)
def test_a_map_that_is_none_is_refused(headers: str, says: str) -> None:
    content = "0403" + "0001" + headers
    with pytest.raises(MalformedValue, match=says):
        read_structs(bytes.fromhex(f"{len(content) // 2:08x}" + content))


@pytest.mark.parametrize(
    "method",
    [
        ExchangeBound(queue="x" * 256),
        QueueDeclare("q", arguments={"a": object()}),
        QueueDeclare("q", arguments={"a": 1 << 64}),
        QueueDeclare("q", arguments={"x" * 256: 1}),
        MessageAccept(((-1, 0),)),
        MessageTransfer("\ud800", 0, 0),
    ],
)
def test_a_value_that_does_not_fit_is_the_callers_fault(method: object) -> None:
    with pytest.raises(LocalFramingError):
        encoded_method(method)  # type: ignore[arg-type]


def test_a_value_that_is_nested_without_end_is_the_callers_fault() -> None:
    endless: dict[str, Any] = {}
    endless["more"] = endless
    with pytest.raises(LocalFramingError):
        encoded_method(QueueDeclare("q", arguments=endless))


@pytest.mark.parametrize("struct", [SessionHeader(), 5, b"", None, {}])
def test_what_is_no_struct_with_a_code_stands_in_no_header(struct: Any) -> None:
    with pytest.raises(LocalFramingError):
        encoded_structs([struct])
