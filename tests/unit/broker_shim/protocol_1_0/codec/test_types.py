"""The codec of AMQP 1.0's types: bytes as the specification draws them, and what is refused."""

from __future__ import annotations

import struct

import pytest

from broker_shim.amqp_1_0.composites import (
    COMPOSITES,
    Attach,
    Begin,
    Coordinator,
    Error,
    Flow,
    Modified,
    Rejected,
    Source,
    Target,
    Transfer,
)
from broker_shim.amqp_1_0.primitives import (
    ENCODINGS,
    Char,
    Decimal32,
    Symbol,
    UByte,
)
from broker_shim.protocol_1_0.codec.composites import encoded_composite, read_performative
from broker_shim.protocol_1_0.codec.decoder import MAX_DEPTH, RAW, TYPED, read
from broker_shim.protocol_1_0.codec.encoder import write
from broker_shim.protocol_1_0.codec.errors import DecodeError, InvalidCommand
from broker_shim.protocol_1_0.codec.values import Array, Described
from tests.support.amqp.vectors import VECTORS


def identity(value: object) -> object:
    """A value with its class, as far down as there are values."""
    if isinstance(value, list):
        return [identity(each) for each in value]
    return (type(value), value)


@pytest.mark.parametrize(("value", "encoded"), VECTORS, ids=[each[1][:20] for each in VECTORS])
def test_a_value_is_written_and_read_as_the_specification_draws_it(
    value: object, encoded: str
) -> None:
    assert write(value).hex() == encoded
    found, end = read(bytes.fromhex(encoded))
    assert identity(found) == identity(value)
    assert end == len(encoded) // 2


@pytest.mark.parametrize(("value", "encoded"), VECTORS, ids=[each[1][:20] for each in VECTORS])
def test_a_value_that_is_cut_short_is_refused_wherever_it_is_cut(
    value: object, encoded: str
) -> None:
    whole = bytes.fromhex(encoded)
    for size in range(len(whole)):
        with pytest.raises(DecodeError):
            read(whole[:size])


@pytest.mark.parametrize(("value", "encoded"), VECTORS, ids=[each[1][:20] for each in VECTORS])
def test_bytes_after_a_value_are_left_alone(value: object, encoded: str) -> None:
    whole = bytes.fromhex(encoded)
    assert read(whole + b"\x40\xff")[1] == len(whole)


def test_every_encoding_of_the_table_has_a_reader() -> None:
    codes = {code for encodings in ENCODINGS.values() for code, _, _ in encodings}
    assert set(RAW) == codes
    assert set(TYPED) == codes | {0}


@pytest.mark.parametrize(
    ("encoded", "says"),
    [
        ("ff", "no such constructor"),
        ("5602", "boolean"),
        ("a101ff", "utf-8"),
        ("a301ff", "ascii"),
        ("730000d800", "utf-32"),
        ("c0020541", "5 items"),
        ("c003014041", "fill"),
        ("c10401a1016b", "no value"),
        ("c10804a1016b40a1016b40", "fill"),
        ("c10904a1016b40a1016b40", "twice"),
        ("c103024540", "itself"),
        ("c00000", "ends after"),
        ("d00000000000000000", "ends after"),
        ("e00311" + "40" + "40", "17 items"),
        ("e00302a300", "short"),
        ("f0000000" + "05" + "ffffffff" + "40", "4294967295 items"),
        ("d0ffffffff" + "ffffffff", "ends after"),
        ("b0ffffffff", "ends after"),
        ("00532401", "a list was expected"),
    ],
)
def test_what_is_not_amqp_is_refused_with_the_reason(encoded: str, says: str) -> None:
    with pytest.raises(DecodeError, match=says):
        read(bytes.fromhex(encoded))


@pytest.mark.parametrize("code", ["list", "described", "array"])
def test_depth_is_limited_before_it_can_hurt(code: str) -> None:
    encoded = b"\x40"
    for _ in range(MAX_DEPTH + 5_000):
        if code == "list":
            encoded = struct.pack(">BII", 0xD0, len(encoded) + 4, 1) + encoded
        elif code == "array":
            encoded = struct.pack(">BII", 0xF0, len(encoded) + 4, 1) + encoded
        else:
            encoded = b"\x00\x53\xff" + encoded
    with pytest.raises(DecodeError, match="deeper"):
        read(encoded)


def test_a_chain_of_descriptors_is_as_deep_as_any_other_value() -> None:
    with pytest.raises(DecodeError, match="deeper"):
        read(b"\x00" * 100_000)


def test_values_up_to_the_depth_are_read() -> None:
    value: object = None
    for _ in range(MAX_DEPTH):
        value = [value]
    assert read(write(value))[0] == value


def test_trailing_fields_that_say_nothing_are_left_out() -> None:
    assert encoded_composite(Transfer(1)).hex() == "005314c003015201"
    assert encoded_composite(Transfer(1, more=False, settled=True)).hex() == (
        "005314c0070552014040" + "40" + "41"
    )


@pytest.mark.parametrize(
    "descriptor", ["5314", "800000000000000014", "a312" + b"amqp:transfer:list".hex()]
)
def test_a_descriptor_may_be_a_number_of_any_width_or_a_symbol(descriptor: str) -> None:
    encoded = bytes.fromhex(f"00{descriptor}c003015201")
    assert read_performative(encoded, 0, len(encoded)) == (Transfer(1), len(encoded))


def test_one_of_many_may_stand_alone() -> None:
    alone, array = Source(outcomes=("a",)), write(Array("symbol", ("a",)))
    encoded = encoded_composite(alone)
    assert array in encoded
    one = encoded.replace(array, b"\xa3\x01a")
    shorter = len(array) - 3
    one = one[:4] + bytes((one[4] - shorter,)) + one[5:]
    assert read(one)[0] == alone


@pytest.mark.parametrize(
    ("composite", "says"),
    [
        ("00531445", "0 fields"),
        ("005314c0020140", "handle"),
        ("005314c00401a10178", "handle"),
        ("005314c00f0c" + "5201" + "40" * 12, "fields"),
        ("005314c0080752014040404040" + "40", "fill"),
        ("005314c00a" + "07" + "5201" + "4040404040" + "5002", "rcv-settle-mode"),
        ("005314c00c" + "08" + "5201" + "404040404040" + "005328" + "45", "cannot stand"),
        ("005314c00c" + "08" + "5201" + "404040404040" + "0053ff" + "45", "cannot stand"),
    ],
)
def test_a_field_that_does_not_fit_is_refused_by_name(composite: str, says: str) -> None:
    encoded = bytes.fromhex(composite)
    with pytest.raises(DecodeError, match=says):
        read_performative(encoded, 0, len(encoded))


def test_a_performative_may_not_run_into_the_next_frame() -> None:
    encoded = encoded_composite(Begin(next_outgoing_id=1, incoming_window=2, outgoing_window=3))
    with pytest.raises(DecodeError, match="past its frame"):
        read_performative(encoded, 0, len(encoded) - 1)


@pytest.mark.parametrize(
    "value",
    [
        Transfer(-1),
        Transfer(1 << 32),
        Transfer("1"),  # type: ignore[arg-type]
        Flow(handle=1),
        Attach("é" * 3, 0, False, snd_settle_mode=300),
        Error("é"),
        Rejected(Error("x", 3)),  # type: ignore[arg-type]
        Source(filter={"a": object()}),
    ],
)
def test_a_value_that_does_not_fit_its_field_is_the_callers_fault(value: object) -> None:
    with pytest.raises(InvalidCommand):
        encoded_composite(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value", [object(), UByte(256), Char("ab"), Decimal32(b"x"), Symbol("é"), "\ud800", 1 << 63]
)
def test_a_value_that_no_type_holds_is_the_callers_fault(value: object) -> None:
    with pytest.raises(InvalidCommand):
        write(value)


def test_termini_outcomes_and_maps_of_them_come_back_as_they_went() -> None:
    sent = Attach(
        "l",
        4,
        True,
        source=Source(
            "q", durable=2, expiry_policy="never", filter={Symbol("f"): Described(Symbol("x"), "y")}
        ),
        target=Target("t", dynamic_node_properties={Symbol("p"): None}),
        unsettled={b"t": Modified(delivery_failed=True), b"u": None},
        initial_delivery_count=9,
        max_message_size=1 << 40,
        offered_capabilities=("a", "b"),
    )
    encoded = encoded_composite(sent)
    assert read_performative(encoded, 0, len(encoded)) == (sent, len(encoded))


def test_a_coordinator_is_a_target() -> None:
    sent = Attach("l", 0, False, source=Source(), target=Coordinator(("amqp:local-transactions",)))
    encoded = encoded_composite(sent)
    assert read_performative(encoded, 0, len(encoded))[0] == sent


def test_all_composites_of_the_specification_are_there() -> None:
    assert len(COMPOSITES) == 33
    assert {each.CODE for each in COMPOSITES.values()} == set(COMPOSITES)
