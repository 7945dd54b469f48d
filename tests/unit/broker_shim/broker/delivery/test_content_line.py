"""Messages that wait for their content, which a store gives late, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from broker_shim.broker.delivery.content_line import ContentLine
from broker_shim.broker.delivery.taken_run import TakenRun
from broker_shim.broker.storage.contents import OnLoaded
from broker_shim.errors import StoreError, Unavailable
from broker_shim.messages.hold import Hold, Messages
from broker_shim.store.interface import Content
from sparkstore.core.entries import EntryFacts
from sparkstore.core.records import MessageHeader


class Late:
    """Content by message id: some at hand, the rest when the test says so."""

    def __init__(self) -> None:
        self.are_at_hand: set[int] = set()
        self.loading: list[tuple[int, OnLoaded]] = []
        self.error: StoreError | None = None

    def content(self, message_id: int) -> Content:
        return MessageHeader(header=b"head"), b"%d" % message_id

    def now(self, message_ids: Sequence[int]) -> list[Content | None]:
        return [self.content(i) if i in self.are_at_hand else None for i in message_ids]

    def load(self, message_id: int, on_loaded: OnLoaded) -> None:
        self.loading.append((message_id, on_loaded))

    def come(self, *message_ids: int) -> None:
        for message_id, on_loaded in [pair for pair in self.loading if pair[0] in message_ids]:
            self.loading.remove((message_id, on_loaded))
            on_loaded(self.error or self.content(message_id))


@pytest.fixture
def late() -> Late:
    return Late()


@pytest.fixture
def taken() -> Callable[..., TakenRun]:
    """A run of messages with these ids."""
    messages = Messages(lambda call: call())
    return lambda *ids: TakenRun(Hold(messages, ids, "x"), EntryFacts())


def line_of(late: Late, came: list[Any]) -> ContentLine:
    calls: Any = SimpleNamespace(contents=late)
    missing = lambda run, error: came.append(([*run.message_ids], error))  # noqa: E731
    return ContentLine(calls, partial(_note, came), missing)


def _note(came: list[Any], run: TakenRun) -> None:
    came.append(([*run.message_ids], run.bodies))


def test_a_run_goes_on_as_far_as_all_before_it_is_here(
    late: Late, taken: Callable[..., TakenRun]
) -> None:
    came: list[Any] = []
    line, run = line_of(late, came), taken(1, 2, 3)
    late.are_at_hand = {1, 3}
    line.ask(run)
    assert [message_id for message_id, _ in late.loading] == [2]
    assert came == []  # asked for early: its turn comes when it is added
    line.add([run])
    assert came == [([1], [b"1"])]
    late.come(2)
    assert came[1:] == [([2, 3], [b"2", b"3"])]


def test_content_that_came_before_its_run_is_in_line_is_kept_for_it(
    late: Late, taken: Callable[..., TakenRun]
) -> None:
    came: list[Any] = []
    line, run = line_of(late, came), taken(1, 2)
    line.ask(run)
    late.come(1, 2)
    assert came == []
    line.add([run])
    assert came == [([1, 2], [b"1", b"2"])]


def test_content_of_a_run_that_went_back_is_loaded_anew_when_it_comes_again(
    late: Late, taken: Callable[..., TakenRun]
) -> None:
    came: list[Any] = []
    line = line_of(late, came)
    for at_once in (True, False):
        run = taken(1)
        line.ask(run)
        if at_once:
            late.come(1)
        line.forget(run)
        late.come(1)
    late.error = Unavailable("not now")
    again = taken(1)
    line.ask(again)
    line.add([again])
    assert came == []
    late.come(1)
    assert came == [([1], late.error)]


def test_a_load_that_failed_is_tried_again_before_all_others(
    late: Late, taken: Callable[..., TakenRun]
) -> None:
    came: list[Any] = []
    line, run, other = line_of(late, came), taken(1), taken(2)
    late.are_at_hand = {2}
    for one in (run, other):
        line.ask(one)
    line.add([run])
    line.hold()
    line.add([other])
    late.error = Unavailable("not now")
    late.come(1)
    line.go()
    assert [ids for ids, _ in came] == [[1], [2]]
    late.error = None
    line.again(run)
    late.come(1)
    assert came[2:] == [([1], [b"1"])]
