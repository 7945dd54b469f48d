"""Settings as a class declares them: types, bounds, rows and texts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, ClassVar

import pytest

from sparkstore.declared_settings import Bounds, NotRead, check_declared, settings_of, texts_of
from sparkstore.errors import InvalidRequest
from sparkstore.settings_file import read_row


class Shape(StrEnum):
    ROUND = "round"
    FLAT = "flat"


@dataclass(frozen=True, slots=True)
class Dish:
    """Settings of a dish.

    It has another paragraph.

    Attributes:
        name: Name of it, which may
            need two lines.
        size: How large it is. For example:

              size = 3

            No more is said.
        shape: Its shape.
    """

    PLACE: ClassVar[str] = "[kitchen] dishes:"

    name: Annotated[str, Bounds(is_needed=True)]
    size: Annotated[int, Bounds(1, 9)] = 2
    shape: Shape = Shape.ROUND
    is_hot: bool | None = None
    tags: Annotated[tuple[str, ...], Bounds(words=("red", "blue"))] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)
    price: Annotated[int, NotRead] = 7


def test_a_row_is_read_with_defaults_and_words_become_what_they_are() -> None:
    row = read_row({"name": "soup", "shape": "flat", "tags": ["red"]}, Dish)
    assert row == Dish("soup", shape=Shape.FLAT, tags=("red",))
    assert isinstance(row.shape, Shape)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (3, '[kitchen] dishes: 3 needs name = "…"'),
        ({}, '[kitchen] dishes: {} needs name = "…"'),
        ({"name": ""}, 'needs name = "…"'),
        ({"name": 5}, 'needs name = "…"'),
        ({"name": "a", "sise": 3}, "unknown key 'sise' of [kitchen] dishes: did you mean 'size'?"),
        ({"name": "a", "size": 0}, "[kitchen] dishes: size is 0: from 1 to 9"),
        ({"name": "a", "size": "3"}, "size is '3': say a whole number"),
        ({"name": "a", "shape": "oval"}, "shape is 'oval': say one of round, flat"),
        ({"name": "a", "shape": 1}, "shape is 1: say a text"),
        ({"name": "a", "is_hot": 1}, "is_hot is 1: say true or false"),
        ({"name": "a", "tags": "red"}, "tags must be a list"),
        ({"name": "a", "tags": [1]}, "tags must be a list of texts"),
        ({"name": "a", "tags": ["red", "pink"]}, "tags has 'pink': say some of red, blue"),
        ({"name": "a", "arguments": 3}, "arguments must be a table"),
        ({"name": "a", "price": 3}, "unknown key 'price'"),
        ({"name": "a", "salt": 3}, "salt belongs into arguments = {salt = …}"),
    ],
    ids=str,
)
def test_a_row_that_is_wrong_is_refused_by_what_is_declared(row: object, told: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(told)):
        read_row(row, Dish, ["salt"])


def test_an_instance_is_checked_as_a_file_is() -> None:
    check_declared(Dish("a"), "[dish]")
    with pytest.raises(InvalidRequest, match=re.escape("[dish] size is 10: from 1 to 9")):
        check_declared(Dish("a", size=10), "[dish]")


def test_texts_are_paragraphs_and_examples_that_keep_their_lines() -> None:
    head, texts = texts_of(Dish)
    assert head == ["Settings of a dish.", "It has another paragraph."]
    assert texts["name"] == ["Name of it, which may need two lines."]
    said = ["How large it is. For example:", "  size = 3", "No more is said."]
    assert texts["size"] == said
    assert texts["shape"] == ["Its shape."]
    assert list(settings_of(Dish))[:3] == ["name", "size", "shape"]
