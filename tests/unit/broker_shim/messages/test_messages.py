"""The holders of messages."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable

import pytest

from broker_shim.messages.hold import Hold, Messages


@pytest.fixture
def posted() -> list[Callable[[], None]]:
    return []


@pytest.fixture
def messages(posted: list[Callable[[], None]]) -> Messages:
    return Messages(posted.append)


def test_a_hold_names_who_has_which_messages_until_it_is_released(messages: Messages) -> None:
    first = Hold(messages, (1, 2), "queue a")
    second = Hold(messages, (1,), "queue b")
    assert messages.holders() == {1: ["queue a", "queue b"], 2: ["queue a"]}
    first.release()
    first.release()  # the second time does nothing
    assert messages.holders() == {1: ["queue b"]}
    second.release()
    assert messages.holders() == {}


def test_a_hold_that_is_cut_is_two_and_each_ends_by_itself(messages: Messages) -> None:
    first = Hold(messages, (1, 2, 3, 4), "a")
    last = first.cut(3)
    middle = first.cut(1)
    assert [[*hold.message_ids] for hold in (first, middle, last)] == [[1], [2, 3], [4]]
    assert messages.holders() == {number: ["a"] for number in (1, 2, 3, 4)}
    middle.release()
    last.release()
    assert messages.holders() == {1: ["a"]}
    first.release()
    assert messages.holders() == {}


def test_garbage_that_was_never_released_lets_go_later_and_names_its_holder(
    messages: Messages, posted: list[Callable[[], None]], caplog: pytest.LogCaptureFixture
) -> None:
    Hold(messages, (7, 8), "a forgetful link")
    Hold(messages, (7,), "a forgetful link")
    with caplog.at_level(logging.WARNING):
        gc.collect()
    said = "message 7 was held by 'a forgetful link', who never released it: a fault"
    heard = [record.getMessage() for record in caplog.records]
    assert [text for text in heard if "forgetful" in text] == [said, said]  # not other tests'
    assert messages.holders()[7] == ["a forgetful link"] * 2  # nothing happens on that thread
    for call in posted:
        call()
    assert messages.holders() == {}
