"""Schemas of JSON bodies are inferred, read from files, and written for DuckDB."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparkstore.content.body_schemas import ddl_of_file, duckdb_structure, inferred
from sparkstore.errors import InvalidRequest

WHOLE = "n BIGINT, `a b` ARRAY<STRUCT<s: STRING, d: DECIMAL(10,2)>>, m MAP<STRING, DOUBLE>"


def test_a_schema_is_what_all_bodies_fit() -> None:
    bodies = [
        '{"n": 1, "items": [{"x": null}], "c d": {"e": 1}, "mixed": 1}',
        '{"n": 2.5, "items": [{"x": "k", "y": true}], "none": {}, "mixed": "a dozen"}',
        '{"large": 9223372036854775808, "n": null}',
        "no JSON",
        "[1]",
        None,
    ]
    assert inferred(bodies, "q") == (
        "n DOUBLE, items ARRAY<STRUCT<x: STRING, y: BOOLEAN>>, `c d` STRUCT<e: BIGINT>,"
        " mixed STRING, none STRING, large DOUBLE"
    )


@pytest.mark.parametrize("bodies", [[], [None], ["[]"], ["7"], ["{}"], ["[" * 100_000]])
def test_bodies_without_an_object_have_no_schema(bodies: list[str | None]) -> None:
    with pytest.raises(InvalidRequest, match="queue 'q' is a JSON object: give body_as a schema"):
        inferred(bodies, "q")


def test_duckdb_gets_each_type_and_name() -> None:
    fields = '"n" BIGINT, "a b" STRUCT("s" VARCHAR, "d" DECIMAL(10,2))[], "m" MAP(VARCHAR, DOUBLE)'
    for ddl in (WHOLE, f"STRUCT<{WHOLE}>"):
        assert json.loads(duckdb_structure(ddl)) == f"STRUCT({fields})"


@pytest.mark.parametrize(
    "ddl", ["", "n", "n BIG", "n INT,", "n INT; x", "n INT m INT", "m MAP<INT, INT>", "a ARRAY<INT"]
)
def test_what_is_no_schema_says_how_one_looks(ddl: str) -> None:
    with pytest.raises(InvalidRequest, match="is no schema: write names and types, as"):
        duckdb_structure(ddl)


def test_a_file_has_a_json_schema_or_one_of_spark(tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    text = {"type": "string"}
    items = {"type": "array", "items": {"type": "integer"}}
    file.write_text(json.dumps({"type": "object", "properties": {"a": text, "b": items}}))
    assert ddl_of_file(file) == "a STRING, b ARRAY<BIGINT>"
    array = {"type": "array", "elementType": "long", "containsNull": True}
    by_name = {"type": "map", "keyType": "string", "valueType": "decimal(10,2)"}
    kinds = {"a": "string", "b": array, "m": by_name}
    fields = [{"name": name, "type": kind, "nullable": True} for name, kind in kinds.items()]
    file.write_text(json.dumps({"type": "struct", "fields": fields}))
    assert ddl_of_file(file) == "a STRING, b ARRAY<LONG>, m MAP<STRING, DECIMAL(10,2)>"


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("a.json", "{}", "is no schema: write a JSON Schema of an object"),
        ("b.json", "no JSON", "is no schema: write a JSON Schema of an object"),
        ("c.json", '{"type": "string"}', "is no schema of an object with fields"),
        ("d.json", None, "cannot be read: No such file"),
    ],
)
def test_a_file_that_is_no_schema_is_one_clear_line(
    tmp_path: Path, name: str, text: str | None, why: str
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(InvalidRequest, match=why) as refused:
        ddl_of_file(tmp_path / name)
    assert "\n" not in str(refused.value)
