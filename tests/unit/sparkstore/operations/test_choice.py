"""Messages chosen by id, age and properties: every condition must hold."""

from __future__ import annotations

import pytest

from sparkstore.core.records import MessageHeader
from sparkstore.errors import InvalidRequest
from sparkstore.operations.choice import Choice, choice_of

HEADER = MessageHeader(subject="eggs", properties=(("land", "eu"), ("n", "1")))


@pytest.mark.parametrize(
    ("choice", "is_chosen"),
    [
        (Choice(), True),
        (Choice(frozenset({1})), True),
        (Choice(frozenset({2})), False),
        (Choice(older_than_us=500_000), True),
        (Choice(older_than_us=500_001), False),
        (Choice(frozenset({1}), 500_001), False),
    ],
)
def test_a_place_is_chosen_by_id_and_age(choice: Choice, *, is_chosen: bool) -> None:
    assert choice.takes(1, at_us=1_000_000, now_us=1_500_000) is is_chosen


@pytest.mark.parametrize(
    ("choice", "is_chosen"),
    [
        (Choice(properties=(("land", "eu"), ("n", "1"))), True),
        (Choice(properties=(("land", "eu"), ("n", "2"))), False),
        (Choice(properties=(("Land", "eu"),)), False),
        (Choice(subject="eggs"), True),
        (Choice(subject="egg"), False),
    ],
)
def test_a_header_is_chosen_by_subject_and_properties(choice: Choice, *, is_chosen: bool) -> None:
    assert choice.needs_header
    assert choice.takes_header(HEADER) is is_chosen


@pytest.mark.parametrize(
    ("told", "age_us"),
    [("0s", 0), ("250ms", 250_000), ("2h", 7_200_000_000), ("7d", 604_800_000_000)],
)
def test_an_age_is_a_number_and_a_unit(told: str, age_us: int) -> None:
    assert choice_of((), told, (), None).older_than_us == age_us


@pytest.mark.parametrize("told", ["", "1", "h", "-1h", "1.5h", "1 h", "1w", "9" * 13 + "d"])
def test_another_age_is_refused_with_how_to_write_it(told: str) -> None:
    with pytest.raises(InvalidRequest, match="such as 90s or 7d"):
        choice_of((), told, (), None)


def test_a_property_may_have_an_equals_sign_in_its_value_and_needs_a_name() -> None:
    assert choice_of((), None, ["a=b=c", "e="], None).properties == (("a", "b=c"), ("e", ""))
    for told in ("a", "=b", ""):
        with pytest.raises(InvalidRequest, match="NAME=VALUE"):
            choice_of((), None, [told], None)
