from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_shim.durability import TerminusDurability
from broker_shim.errors import InvalidRequest
from broker_shim.store.interface import Exchange, Queue
from sparkstore.core.state_machine import definitions
from sparkstore.core.state_machine.arguments import check_name

_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@given(st.sampled_from(TerminusDurability), st.dictionaries(st.text(max_size=4), _json, max_size=3))
def test_a_definition_comes_back_from_its_detail(
    durability: TerminusDurability, arguments: dict[str, Any]
) -> None:
    queue, exchange = Queue("q", durability, arguments), Exchange("x", "t", durability, arguments)
    assert definitions.queue_of("q", definitions.detail_of(queue)) == queue
    assert definitions.exchange_of("x", definitions.detail_of(exchange)) == exchange
    assert definitions.durability_of(definitions.detail_of(queue)) == durability


def test_a_definition_that_does_not_say_how_durable_it_is_is_kept() -> None:
    assert definitions.durability_of("{}") is TerminusDurability.UNSETTLED_STATE


def test_equal_arguments_have_one_detail_whatever_their_order() -> None:
    one = Queue("q", arguments={"a": 1, "b": {"c": 2, "d": 3}})
    other = Queue("q", arguments={"b": {"d": 3, "c": 2}, "a": 1})
    assert definitions.detail_of(one) == definitions.detail_of(other)


@pytest.mark.parametrize("value", [object(), b"x", {1, 2}, float("nan"), float("inf"), {(1,): 2}])
def test_arguments_that_json_cannot_hold_are_refused(value: object) -> None:
    with pytest.raises(InvalidRequest, match="what JSON can hold"):
        definitions.detail_of(Queue("q", arguments={"a": value}))


def test_arguments_that_hold_themselves_or_are_too_deep_are_refused() -> None:
    loop: list[object] = []
    loop.append(loop)
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    for value in (loop, deep):
        with pytest.raises(InvalidRequest, match="what JSON can hold"):
            definitions.detail_of(Queue("q", arguments={"a": value}))


def test_a_detail_is_json_that_spark_can_read() -> None:
    detail = json.loads(definitions.detail_of(Exchange("x", "topic", arguments={"🦊": "\x00"})))
    assert detail == {"arguments": {"🦊": "\x00"}, "durability": 2, "type": "topic"}


@pytest.mark.parametrize("name", ["", "a/b", "..", "\x00", "🦊", "x" * 10_000])
def test_any_text_is_a_name(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(("name", "clue"), [("\ud83e", "Unicode"), ("x" * 10_001, "longer than")])
def test_half_a_surrogate_pair_or_ten_thousand_and_one_characters_are_no_name(
    name: str, clue: str
) -> None:
    with pytest.raises(InvalidRequest, match=clue):
        check_name(name)


def test_an_error_names_what_it_is_about() -> None:
    assert definitions.what(Queue("q\n")) == "queue 'q\\n'"
    assert definitions.what(Exchange("e", "topic")) == "exchange 'e'"
