"""Rows as messages: every column and type, and what cannot be one."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import types as t

from broker_shim.errors import InvalidRequest
from broker_shim.messages.neutral import neutral_of
from broker_shim.spark_sink.message_columns import MessageColumns, RowMessage, RowRefused

NOW_US = 1_700_000_000_000_000
AT = datetime(2026, 11, 24, 10, 0, 0, 250_000, tzinfo=UTC)
AT_US = int(AT.timestamp() * 1_000_000)


def schema(**kinds: t.DataType) -> t.StructType:
    return t.StructType([t.StructField(name, kind) for name, kind in kinds.items()])


def message(kinds: dict[str, t.DataType], *values: Any) -> RowMessage:
    return MessageColumns(schema(**kinds)).message(values, NOW_US)


def test_a_body_is_what_its_type_says() -> None:
    binary = message({"body": t.BinaryType()}, b"\x00\xff")
    assert (binary.body, binary.header.message_type) == (b"\x00\xff", "data")
    text = message({"body": t.StringType()}, "größer")
    assert (text.body, text.header.message_type) == ("größer".encode(), "text")
    assert text.header.content_type is None
    fields = schema(id=t.LongType(), tags=t.ArrayType(t.StringType()), none=t.StringType())
    json = message({"body": fields}, {"id": 7, "tags": ["a", None], "none": None})
    assert (json.body, json.header.message_type) == (b'{"id":7,"tags":["a",null]}', "data")
    assert json.header.content_type == "application/json"
    assert json.header.durable  # unless a row says otherwise
    large = message({"body": t.BinaryType()}, b"x" * 70_000)
    assert large.header.body_bytes == 70_000


TEXT = t.StringType()
HEADER_KINDS: dict[str, t.DataType] = {
    "body": TEXT,
    "durable": t.BooleanType(),
    "priority": t.IntegerType(),
    "ttl": t.LongType(),
    "message_id": TEXT,
    "correlation_id": t.LongType(),
    "user_id": TEXT,
    "to": TEXT,
    "subject": TEXT,
    "reply_to": TEXT,
    "content_type": TEXT,
    "content_encoding": TEXT,
    "created_at": t.TimestampType(),
    "group_id": TEXT,
    "group_sequence": t.IntegerType(),
    "app_id": TEXT,
    "routing_key": TEXT,
}


def test_each_column_of_a_header_is_that_field_of_the_message() -> None:
    kinds = HEADER_KINDS
    values = (
        *("b", False, 9, 60_000, "id-1", 42, "me", "there", "eggs", "back", "text/plain", "gzip"),
        *(AT, "g", 3, "app", "key"),
    )
    header, body, routing_key = message(kinds, *values)
    assert (body, routing_key) == (b"b", "key")
    assert (header.durable, header.priority, header.expires_at) == (
        False,
        9,
        NOW_US + 60_000_000,
    )
    assert (header.amqp_message_id, header.correlation_id, header.user_id) == ("id-1", "42", "me")
    assert neutral_of(header).correlation_id == 42
    assert (header.to, header.subject, header.reply_to) == ("there", "eggs", "back")
    assert (header.content_type, header.content_encoding) == ("text/plain", "gzip")
    assert (header.created_at, header.group_id) == (AT_US, "g")
    assert dict(header.properties) == {"x-amqp-0-10.app-id": "app"}
    expiring = message({"body": TEXT, "expires_at": t.TimestampType()}, "b", AT)
    assert expiring.header.expires_at == AT_US
    nothing = MessageColumns(schema(**kinds)).message(("b", *[None] * 16), NOW_US)
    assert nothing.header == message({"body": TEXT}, "b").header
    assert nothing.routing_key is None


def test_fields_of_properties_keep_their_types() -> None:
    kinds: dict[str, t.DataType] = {
        "boolean": t.BooleanType(),
        "byte": t.ByteType(),
        "short": t.ShortType(),
        "int": t.IntegerType(),
        "long": t.LongType(),
        "float": t.FloatType(),
        "double": t.DoubleType(),
        "string": t.StringType(),
        "binary": t.BinaryType(),
        "timestamp": t.TimestampType(),
    }
    values = (True, -1, 300, 1 << 20, 1 << 40, 0.5, 0.1, "ü", b"\x00", AT)
    given = dict(zip(kinds, values, strict=True))
    made = message({"body": t.StringType(), "properties": schema(**kinds)}, "b", given)
    found = neutral_of(made.header).properties
    assert {name: each.kind for name, each in found.items()} == {name: name for name in kinds}
    assert [each.value for each in found.values()] == [*values[:-1], AT_US // 1000]
    day = {"day": t.DateType(), "null": t.IntegerType()}
    told = {"day": date(2026, 11, 24), "null": None}
    made = message({"body": t.StringType(), "properties": schema(**day)}, "b", told)
    assert made.header.properties == (("day", "2026-11-24"),)


def test_a_map_of_properties_is_taken_as_pairs_and_nulls_are_left_out() -> None:
    kinds = {"body": t.StringType(), "properties": t.MapType(t.StringType(), t.StringType())}
    pairs = [("a", "1"), ("b", None), ("", "x" * 300)]
    assert message(kinds, "b", pairs).header.properties == (("a", "1"), ("", "x" * 300))
    assert message(kinds, "b", []).header.properties == ()
    assert message(kinds, "b", None).header.properties == ()
    longs = {"body": t.StringType(), "properties": t.MapType(t.StringType(), t.LongType())}
    found = neutral_of(message(longs, "b", [("n", 5)]).header).properties
    assert (found["n"].kind, found["n"].value) == ("long", 5)


@pytest.mark.parametrize(
    ("kinds", "told"),
    [
        ({"subject": TEXT}, "no column is named body, among subject"),
        ({"body": TEXT, "propertys": TEXT}, "'propertys' is not one.*'properties' meant"),
        ({"body": TEXT, "queue": TEXT}, "'queue' is not one of a message"),
        ({"body": TEXT, "message_id": TEXT, "amqp_message_id": TEXT}, "one field of a message"),
        ({"body": t.IntegerType()}, "body is of type int: it must be binary, string or a struct"),
        ({"body": t.ArrayType(TEXT)}, "body is of type array<string>"),
        ({"body": schema(v=t.VariantType())}, "column body: JSON has no form for variant"),
        ({"body": TEXT, "priority": TEXT}, "priority is of type string: it must be an integer"),
        ({"body": TEXT, "created_at": t.LongType()}, "created_at is of type bigint.*timestamp"),
        ({"body": TEXT, "routing_key": t.LongType()}, "routing_key is of type bigint"),
        ({"body": TEXT, "properties": TEXT}, "properties is of type string: it must be a map"),
        (
            {"body": TEXT, "properties": t.MapType(t.LongType(), TEXT)},
            "it must be a map with string keys",
        ),
        (
            {"body": TEXT, "properties": schema(d=t.DecimalType(10, 2))},
            "properties: d is of type decimal",
        ),
        (
            {"body": TEXT, "properties": t.MapType(TEXT, t.ArrayType(TEXT))},
            "properties: a value is of type array",
        ),
    ],
)
def test_a_schema_that_cannot_be_messages_is_refused(
    kinds: dict[str, t.DataType], told: str
) -> None:
    with pytest.raises(InvalidRequest, match=told):
        MessageColumns(schema(**kinds))


def test_a_column_that_is_there_twice_is_refused() -> None:
    twice = t.StructType([t.StructField("body", TEXT), t.StructField("body", TEXT)])
    with pytest.raises(InvalidRequest, match="'body' is there twice"):
        MessageColumns(twice)


@pytest.mark.parametrize(
    ("kinds", "values", "told"),
    [
        ({"body": TEXT}, (None,), "it has no body: body is null"),
        ({"body": TEXT, "priority": t.IntegerType()}, ("b", 12), "priority: 12 is not from 0 to 9"),
        ({"body": TEXT, "ttl": t.LongType()}, ("b", -1), "ttl: -1 is not from 0 to 4294967295"),
        ({"body": TEXT, "ttl": t.LongType()}, ("b", 1 << 32), "ttl: 4294967296 is not"),
        ({"body": TEXT, "message_id": t.LongType()}, ("b", -1), "no message of AMQP 1.0"),
        ({"body": TEXT, "content_type": TEXT}, ("b", "größe"), "no message of AMQP 1.0"),
        ({"body": TEXT, "subject": TEXT}, ("b", "\ud800"), "no message of AMQP 1.0"),
        ({"body": TEXT}, ("\ud800",), "no message of AMQP 1.0"),
    ],
)
def test_a_row_that_cannot_be_a_message_is_refused_with_its_reason(
    kinds: dict[str, t.DataType], values: tuple[Any, ...], told: str
) -> None:
    with pytest.raises(RowRefused, match=told):
        message(kinds, *values)


def test_a_body_of_json_is_as_spark_writes_it() -> None:
    kinds = schema(
        text=TEXT,
        binary=t.BinaryType(),
        decimal=t.DecimalType(20, 2),
        double=t.DoubleType(),
        nan=t.DoubleType(),
        least=t.DoubleType(),
        day=t.DateType(),
        at=t.TimestampType(),
        local=t.TimestampNTZType(),
        flag=t.BooleanType(),
        inner=schema(a=t.IntegerType()),
        pairs=t.MapType(TEXT, t.IntegerType()),
    )
    values = {
        "text": 'a"ü\n',
        "binary": b"\x00\xff",
        "decimal": Decimal("12345678901234567.10"),
        "double": 0.1,
        "nan": float("nan"),
        "least": float("-inf"),
        "day": date(2026, 1, 2),
        "at": AT,
        "local": datetime(2026, 1, 2, 3, 4, 5, 6000),  # noqa: DTZ001
        "flag": True,
        "inner": {"a": 1},
        "pairs": [("k", 1), ("n", None)],
    }
    assert message({"body": kinds}, values).body.decode() == (
        '{"text":"a\\"ü\\n","binary":"AP8=","decimal":12345678901234567.10,"double":0.1,'
        '"nan":"NaN","least":"-Infinity","day":"2026-01-02","at":"2026-11-24T10:00:00.250Z",'
        '"local":"2026-01-02T03:04:05.006","flag":true,"inner":{"a":1},"pairs":{"k":1,"n":null}}'
    )
