"""Bodies in Avro and Protobuf become JSON by their schema, or null; what is no schema is told."""

from __future__ import annotations

import json
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparkstore.content.binary_schemas import (
    BinarySchema,
    body_structure,
    ddl_of,
    decoded_bodies,
    schema_of_file,
)
from sparkstore.errors import InvalidRequest
from tests.support.roots.binary_messages import ORDER, described, nested

fastavro = pytest.importorskip("fastavro")
pytest.importorskip("google.protobuf")

AVRO: dict[str, Any] = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9}},
        {"name": "raw", "type": {"type": "fixed", "name": "Two", "size": 2}},
        {"name": "again", "type": ["null", "Two"]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "odd", "type": ["int", "string"]},
        {"name": "ratio", "type": "double"},
        {
            "name": "items",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Item",
                    "fields": [{"name": "sku", "type": "string"}],
                },
            },
        },
        {"name": "first", "type": "shop.Item"},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
    ],
}
VALUE = {
    "id": 1 << 40,
    "at": datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
    "day": date(2026, 1, 2),
    "price": Decimal(12),
    "raw": b"\x00\xff",
    "again": None,
    "kind": "B",
    "odd": 7,
    "ratio": float("nan"),
    "items": [{"sku": "x"}],
    "first": {"sku": "ü"},
    "counts": {"a b": 1},
}


def encoded(value: dict[str, Any] = VALUE) -> bytes:
    to = BytesIO()
    fastavro.schemaless_writer(to, fastavro.parse_schema(AVRO), value)
    return to.getvalue()


def decoded(schema: BinarySchema, *bodies: bytes | None) -> list[Any]:
    rows = decoded_bodies(schema, pa.array(bodies, pa.binary())).to_pylist()
    return [row and json.loads(row) for row in rows]


def test_an_avro_body_has_each_type_as_json_and_as_ddl() -> None:
    schema = BinarySchema(json.dumps(AVRO))
    assert ddl_of(schema) == (
        "id BIGINT, at TIMESTAMP, day DATE, price DECIMAL(9,0), raw STRING, again STRING,"
        " kind STRING, odd STRING, ratio DOUBLE, items ARRAY<STRUCT<sku: STRING>>,"
        " first STRUCT<sku: STRING>, counts MAP<STRING, INT>"
    )
    assert decoded(schema, encoded()) == [
        VALUE
        | {"at": "2026-01-02T03:04:05.000006+00:00", "day": "2026-01-02", "price": "12"}
        | {"raw": "0x00ff", "ratio": None}
    ]
    assert '"id" BIGINT, "at" TIMESTAMPTZ' in json.loads(body_structure(json.dumps(AVRO)))


def test_a_body_that_is_not_of_the_schema_is_null() -> None:
    schema, whole = BinarySchema(json.dumps(AVRO)), encoded()
    bodies = [None, b"", b"{}", whole[:-1], whole + b"\x00", b"\xff" * 99]
    assert decoded(schema, *bodies) == [None] * len(bodies)
    proto = BinarySchema(described(), ORDER)
    assert decoded(proto, None, b"\xff", b"\x0a\x05x") == [None] * 3


def test_avros_encoding_of_single_objects_is_known_by_its_schema() -> None:
    """The marker, 8 bytes of the fingerprint, and the datum."""
    fingerprint = fastavro.schema.fingerprint
    to_parsing_canonical_form = fastavro.schema.to_parsing_canonical_form
    form = to_parsing_canonical_form(fastavro.parse_schema(AVRO))
    mark = b"\xc3\x01" + bytes.fromhex(fingerprint(form, "CRC-64-AVRO"))
    other = mark[:-1] + bytes([mark[-1] ^ 1])
    found = decoded(BinarySchema(json.dumps(AVRO)), mark + encoded(), other + encoded())
    assert found[0]["id"] == 1 << 40
    assert found[1] is None
    null = to_parsing_canonical_form(fastavro.parse_schema("null"))
    assert fingerprint(null, "CRC-64-AVRO") == "8a8f25cce724dd63"  # in the order of the bytes


def test_a_protobuf_body_has_each_type_as_json_and_as_ddl() -> None:
    schema = BinarySchema(described(), ORDER)
    assert ddl_of(schema) == (
        "id BIGINT, sku STRING, large DECIMAL(20,0), kind STRING, raw STRING,"
        " at TIMESTAMP, items ARRAY<STRUCT<sku: STRING, pieces: INT>>, counts MAP<STRING, INT>,"
        " note STRING"
    )
    body = bytes.fromhex(
        "08 03  12 01 78  18 ff ff ff ff ff ff ff ff ff 01  20 01  2a 02 00 ff"
        "  32 04 08 01 10 00  3a 05 0a 01 79 10 02  42 05 0a 01 61 10 07"
    )
    (found,) = decoded(schema, body)
    assert found == {
        "id": 3,
        "sku": "x",
        "large": (1 << 64) - 1,
        "kind": "B",
        "raw": "0x00ff",
        "at": "1970-01-01T00:00:01Z",
        "items": [{"sku": "y", "pieces": 2}],
        "counts": {"a": 7},
        "note": None,
    }
    (empty,) = decoded(schema, b"")
    assert (empty["id"], empty["kind"], empty["at"], empty["items"]) == (0, "A", None, [])


@pytest.mark.parametrize(
    "time", ["08 80 80 80 80 80 80 80 80 10", "10 ff ff ff ff ff ff ff ff ff 01"]
)
def test_a_protobuf_body_with_a_time_that_is_none_fails_no_query(time: str) -> None:
    """Seconds beyond the year 9999, and less than no nanoseconds."""
    content = bytes.fromhex(time)
    assert decoded(BinarySchema(described(), ORDER), b"\x32" + bytes([len(content)]) + content) == [
        None
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "this is no Avro schema"),
        ('{"type": "string"}', "one of a record with fields"),
        ('{"type": "record", "name": "R", "fields": []}', "one of a record with fields"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "S"}]}', "no Avro"),
        (
            '{"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "R"]}]}',
            "the Avro record R contains itself",
        ),
    ],
)
def test_what_is_no_avro_schema_is_one_clear_line(text: str, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why) as refused:
        body_structure(text)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "message", "why"),
    [
        (b"\xff", ORDER, "protoc --include_imports --descriptor_set_out=FILE"),
        (described(imports=False), ORDER, "protoc --include_imports --descriptor_set_out=FILE"),
        (described(), "shop.Ordre", "no message 'shop.Ordre' in it: .*shop.Item, shop.Order"),
        (described(), "shop.Tree", "the message shop.Tree contains itself"),
        (described(), "shop.Nothing", "the message shop.Nothing has no fields"),
    ],
)
def test_what_describes_no_message_is_one_clear_line(
    content: bytes, message: str, why: str
) -> None:
    with pytest.raises(InvalidRequest, match=why) as refused:
        ddl_of(BinarySchema(content, message))
    assert "\n" not in str(refused.value)


NOTHING = {"type": "record", "name": "N", "fields": [{"name": "n", "type": "null"}]}


@pytest.mark.parametrize(
    "items", ["null", {"type": "null"}, NOTHING, {"type": "fixed", "name": "F", "size": 0}]
)
@pytest.mark.parametrize("wrap", ["{}", '["null", {}]', '{{"type": "map", "values": {}}}'])
def test_an_avro_array_whose_items_take_no_bytes_is_refused(items: Any, wrap: str) -> None:
    """Five bytes of a body could say ten million of them; a block's count may be negative."""
    array = wrap.format(json.dumps({"type": "array", "items": items}))
    schema = AVRO | {"fields": [{"name": "a", "type": json.loads(array)}]}
    with pytest.raises(InvalidRequest, match="array of nulls or empty records"):
        ddl_of(BinarySchema(json.dumps(schema)))


def test_an_avro_count_beyond_the_body_is_no_work() -> None:
    """Counts of 2^62, and of its negative with the length of a block."""
    for told in ({"type": "array", "items": "int"}, {"type": "map", "values": "null"}):
        schema = BinarySchema(json.dumps(AVRO | {"fields": [{"name": "a", "type": told}]}))
        most = b"\x80" * 8 + b"\x80\x01"
        least = b"\xff" * 8 + b"\x7f" + b"\x04"
        assert decoded(schema, most + b"\x02", least + b"\x02") == [None, None]


def test_an_avro_decimal_of_a_million_bytes_is_no_body_of_its_schema() -> None:
    """Python takes minutes to make a number of it; 64 bytes hold what any engine has."""
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 38}
    schema = BinarySchema(json.dumps(AVRO | {"fields": [{"name": "a", "type": kind}]}))
    (small, large) = decoded(schema, b"\x80\x01" + bytes(63) + b"\x07", b"\x82\x01" + bytes(65))
    assert small == {"a": "7"}
    assert large is None


def test_a_type_that_names_others_twice_at_each_of_30_levels_is_refused() -> None:
    """An Avro schema of 3 KB and a Protobuf description would be a type of a billion fields."""
    kind: Any = "long"
    for level in range(30):
        fields = [{"name": "a", "type": kind}, {"name": "b", "type": f"L{level - 1}"}]
        kind = {"type": "record", "name": f"L{level}", "fields": fields[: 1 + (level > 0)]}
    with pytest.raises(InvalidRequest, match="more than 10,000 fields"):
        ddl_of(BinarySchema(json.dumps(kind)))
    for width, depth, why in ((2, 30, "more than 10,000 fields"), (1, 3000, "other messages")):
        with pytest.raises(InvalidRequest, match=why):
            ddl_of(BinarySchema(nested(width, depth), "L0"))


def test_a_file_is_known_by_its_name(tmp_path: Path) -> None:
    avro, desc, plain = (tmp_path / name for name in ("a.avsc", "b.desc", "c.json"))
    avro.write_text(json.dumps(AVRO))
    desc.write_bytes(described())
    assert schema_of_file(avro) == BinarySchema(json.dumps(AVRO))
    assert schema_of_file(desc, ORDER) == BinarySchema(described(), ORDER)
    assert schema_of_file(plain) is None
    for path, why in (
        (desc, "give body_as one's name, message='shop.Order'"),
        (tmp_path / "d.proto", "is source: compile it with protoc"),
        (tmp_path / "none.avsc", "cannot be read: No such file"),
    ):
        with pytest.raises(InvalidRequest, match=why):
            schema_of_file(path)


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, schema, extra in (
        ("fastavro", BinarySchema(json.dumps(AVRO | {"doc": "anew"})), "avro"),
        ("google.protobuf.descriptor", BinarySchema(described(), "shop.Item"), "protobuf"),
    ):
        reader = f"sparkstore.content.{extra}_bodies"
        monkeypatch.setitem(sys.modules, module, None)
        monkeypatch.delitem(sys.modules, reader, raising=False)
        with pytest.raises(InvalidRequest, match=rf"pip install 'sparkstore\[{extra}\]'"):
            ddl_of(schema)
