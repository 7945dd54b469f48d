"""Properties keep their AMQP types for SQL, and bodies that are values can be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from proton import Message, decimal32, decimal128

from broker_shim.amqp_0_10.structs import MessageDeliveryProperties, MessageProperties
from broker_shim.framing.segments import HeaderSegment
from broker_shim.listener_0_10.messages.message_headers import PROTOCOL as OLDER
from broker_shim.listener_1_0.messages.message import PROTOCOL, parse
from broker_shim.stored_values import body_of, properties_of
from sparkstore.content.typed_values import readable_bodies, typed_properties
from sparkstore.embedded.answers import answer
from sparkstore.tables.root import Root
from tests.support.histories.viewed import plain, rows
from tests.support.odd_bodies import odd_root
from tests.support.roots.typed_messages import typed_root


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Root:
    return typed_root(tmp_path_factory.mktemp("typed"))


def told(root: Root) -> dict[str, dict[str, Any]]:
    """The properties of the first message, each with what is not null."""
    query = (
        "SELECT typed_properties(protocol, header) AS p FROM queue_messages WHERE message_id = 1"
    )
    (row,) = answer(root, query).table.to_pylist()
    found = plain(row["p"])
    assert found is not None
    return {
        name: {field: each for field, each in value.items() if each is not None}
        for name, value in found.items()
    }


def test_each_property_has_its_type_and_its_value(typed: Root) -> None:
    found = told(typed)
    moment = found["t"].pop("moment")
    assert moment.isoformat() == "2025-06-15T15:06:40.123000+00:00"
    assert found == {
        "d": {"type": "long", "text": "301", "integer": 301, "number": 301.0},
        "f": {"type": "double", "text": "2.5", "number": 2.5},
        "nothing": {"type": "null"},
        "b": {"type": "binary", "bytes": b"\xff\x00"},
        "t": {"type": "timestamp", "text": "1750000000123"},
        "ok": {"type": "boolean", "text": "true", "flag": True},
        "s": {"type": "string", "text": "300"},
        "u": {"type": "uuid", "text": "00000000-0000-0000-0000-000000000005"},
        "symbol": {"type": "symbol", "text": "x"},
        "small": {"type": "ubyte", "text": "7", "integer": 7, "number": 7.0},
        "price": {"type": "decimal64", "text": "12.34", "number": 12.34},
    }


def test_numbers_are_compared_as_numbers(typed: Root) -> None:
    query = (
        "SELECT message_id FROM messages"
        " WHERE typed_properties(protocol, header)['d'].number > 300 ORDER BY 1"
    )
    assert [row["message_id"] for row in rows(typed, query)] == [1, 2]


@pytest.mark.parametrize("call", ["body_text", "readable_body"])
def test_a_text_is_the_same_within_coalesce(tmp_path: Path, call: str) -> None:
    """DuckDB reads memory there that is no longer the function's, unless it is copied before."""
    texts = [f"{number}" * 40 for number in range(3_000)]
    root = odd_root(tmp_path / "root", texts)
    asked = f"{call}(protocol, message_type, body)"
    query = f"SELECT coalesce({asked}, '') AS text FROM messages ORDER BY message_id"
    found = [row["text"] for row in rows(root, query)]
    assert found == (texts if call == "body_text" else [json.dumps(text) for text in texts])


def test_bodies_that_are_values_are_json_and_bytes_stay_bytes(typed: Root) -> None:
    readable = "readable_body(protocol, message_type, body) AS body"
    query = f"SELECT {readable} FROM messages ORDER BY message_id"
    found = [row["body"] and json.loads(row["body"]) for row in rows(typed, query)]
    value = {"a": [1, 2.5, None, "0x01", "1970-01-01T00:00:01.000+00:00"], "3": "ü"}
    assert found == [value, 'te"xt', None, [1, [2, "x"]]]


def test_a_null_property_of_0_10_is_told_as_one_of_1_0() -> None:
    headers = MessageProperties(application_headers={"nothing": None, "n": 1})
    encoded = HeaderSegment.of(MessageDeliveryProperties(), headers).payload
    found = typed_properties(pa.array([OLDER]), pa.array([encoded])).to_pylist()[0]
    assert [(name, value["type"]) for name, value in found] == [("nothing", "null"), ("n", "long")]
    assert [value["text"] for _name, value in found] == [None, "1"]


def test_a_body_that_has_decimals_is_told_in_digits() -> None:
    value = [decimal32(0x3200_04D2), decimal128((0x3040 << 112 | 5).to_bytes(16))]
    encoded = bytes(Message(body=value).encode())
    _header, body = parse(encoded, now_us=1)
    found = readable_bodies(pa.array([PROTOCOL]), pa.array(["amqp"]), pa.array([body]))
    assert found.to_pylist() == ['["123.4", "5"]']


@pytest.mark.parametrize("header", [b"", b"\x00", b"\x00\x53\x74\xc1\xff", b"no sections at all"])
def test_a_damaged_header_has_no_properties(header: bytes) -> None:
    assert properties_of(PROTOCOL, header) == {}


@pytest.mark.parametrize("body", [b"", b"\x00", b"\x00\x53\x77", b"no sections at all"])
def test_a_damaged_body_is_null(body: bytes) -> None:
    assert body_of(PROTOCOL, "amqp", body) is None


def test_what_nobody_encoded_has_no_types() -> None:
    protocols = pa.array([None, "raw", PROTOCOL, "unheard-of", OLDER])
    headers = pa.array([b"x", b"x", None, b"x", None], pa.binary())
    assert typed_properties(protocols, headers).to_pylist() == [None, [], None, [], None]
