"""A body in JSON is what its schema says of it, or null, and nothing in between."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparkstore.content.body_schemas import type_of
from sparkstore.content.json_bodies import fitted_json
from tests.support.odd_bodies import FIELDS, SCHEMA, VALUES

KIND = type_of(SCHEMA)


def fitted(text: str) -> Any:
    found = fitted_json(text, KIND)
    return None if found is None else {k: v for k, v in json.loads(found).items() if v is not None}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "[1]",
        "12",
        "null",
        "{'n': 12}",
        '{"n": 7} x',
        '{"n": 5,}',
        '{"n": NaN}',
        "[" * 5000,
    ],
)
def test_what_is_no_object_of_json_is_null(text: str) -> None:
    assert fitted(text) is None
    assert fitted_json(None, KIND) is None


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('{"n": 12}', {"n": 12}),
        ('{"n": "12"}', {}),
        ('{"n": true}', {}),
        ('{"n": 1.0}', {}),
        ('{"n": 1e3}', {}),
        ('{"n": 9223372036854775807}', {"n": 9223372036854775807}),
        ('{"n": 9223372036854775808}', {}),
        ('{"t": 127, "i": -2147483648}', {"t": 127, "i": -2147483648}),
        ('{"t": 128, "i": -2147483649}', {}),
        ('{"n": 1, "n": 2}', {"n": 2}),
        ('{"n": 1, "n": null}', {}),
        ('{"N": 1}', {}),
        ('{"s": "\\ud83d", "n": 13}', {"n": 13}),
        ('{"s": {"a": [1.0, null, "ü"]}}', {"s": '{"a":[1.0,null,"ü"]}'}),
        ('{"s": 1e3, "b": false}', {"s": "1e3", "b": False}),
        ('{"b": "true"}', {}),
        ('{"d": 1e400, "f": 1e39}', {}),
        ('{"d": 1, "f": 16777217}', {"d": 1.0, "f": 16777216.0}),
        ('{"c": 2.675, "e": 1.5}', {"c": "2.68", "e": "2"}),
        ('{"c": 9999.995, "w": 1e999999999}', {}),
        ('{"c": "1"}', {}),
        ('{"y": "2024-02-29"}', {"y": "2024-02-29"}),
        ('{"y": "2026-02-29", "n": 1}', {"n": 1}),
        ('{"y": "20260101"}', {}),
        ('{"z": "2026-01-02 03:04:05"}', {"z": "2026-01-02T03:04:05+00:00"}),
        ('{"z": "2026-01-02T03:04:05.5+02:00"}', {"z": "2026-01-02T01:04:05.500000+00:00"}),
        ('{"z": 5, "l": "2026-01-02T03:04:05Z"}', {}),
        ('{"a": [1, "2", 2.0, null]}', {"a": [1, None, None, None]}),
        ('{"a": 1, "m": [], "r": []}', {}),
        ('{"m": {"\\ud83d": 1, "k": true}}', {"m": {"k": "true"}}),
        ('{"r": {"n": "1", "s": 1, "x": 2}}', {"r": {"n": None, "s": "1"}}),
    ],
)
def test_a_value_is_of_its_type_or_null(text: str, wanted: Any) -> None:
    assert fitted(text) == wanted


def test_whatever_a_field_has_the_others_stay() -> None:
    """Where the body is JSON at all."""
    for field in FIELDS:
        for value in VALUES:
            text = f'{{"kept": 1, "{field}": {value}}}'
            found = fitted_json(text, {**KIND, "kept": "INT"})  # type: ignore[dict-item]
            try:
                json.loads(text, parse_constant=json.JSONDecodeError)
            except (ValueError, TypeError):
                assert found is None
            else:
                assert found is not None
                assert json.loads(found)["kept"] == 1
