"""What protocols ask beside sending and receiving: queries, and acquisition after browsing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker_shim.broker.orders.administration import OnPurged, OnTold
from broker_shim.broker.orders.queries import BoundAnswer
from broker_shim.completion import OnComplete, nobody
from broker_shim.durability import TerminusDurability
from broker_shim.errors import InvalidRequest, NotAcquired, StoreError, Unavailable
from broker_shim.store.interface import Queue
from sparkstore.core.state_machine.call_values import AcquireCall, StoreCall
from sparkstore.operations.administration import AdminAction, Order
from sparkstore.operations.bulk import Answer
from tests.support.amqp.link_clients import Client, House, Place
from tests.support.amqp.orders import ask, bodies, consumer, entries, publish


@pytest.fixture
def house(tmp_path: Path) -> House:
    """A broker over a store of tier 2."""
    return House(Place("recorded", tmp_path))


def delete(queue: str) -> Order:
    return Order(AdminAction.DELETE_QUEUE, queue, force=True)


def acquired(house: House, holder: str, message_id: int = 1) -> list[StoreError | None]:
    answers: list[StoreError | None] = []
    house.broker.acquisition.acquire("q", message_id, holder, answers.append)
    return answers


def test_a_queue_is_told_as_it_was_defined_with_what_is_on_it(house: House) -> None:
    assert house.broker.queries.queue("q") is None
    arguments = {"max_delivery_count": 3}
    ask(house, Order(AdminAction.CREATE_QUEUE, "q", arguments=arguments, durability=1))
    publish(house, "q", "a", "b")
    taken = consumer(house, credit=1)
    assert len(bodies(taken)) == 1
    told = house.broker.queries.queue("q")
    assert told is not None
    assert (told.name, told.arguments) == ("q", arguments)
    assert told.durability is TerminusDurability.CONFIGURATION
    answers: list[Any] = []
    for name in ("q", "none"):
        house.broker.queries.usage(name, lambda *answer: answers.append(answer))
    (error, figures), nothing = answers
    assert (error, nothing) == (None, (None, {}))
    counts = {"depth": 2, "acquired": 1, "consumers": 1, "arrived": 2, "removed": 0}
    assert figures.items() >= counts.items()


def test_what_is_bound_is_told_by_what_is_not_so(house: House) -> None:
    bound, orders = house.broker.queries.bound, AdminAction.ADD_BINDING
    for name in ("q", "other"):
        ask(house, Order(AdminAction.CREATE_QUEUE, name))
    ask(house, Order(orders, "q", "amq.topic", "a.#"))
    ask(house, Order(orders, "q", "amq.match", "k", arguments={"a": 1}))
    assert bound("amq.topic", "q", "a.#") == BoundAnswer()
    assert bound("amq.match", "q", "k", {"a": 1}) == BoundAnswer()
    assert bound("amq.topic", key="a.#") == BoundAnswer()
    assert bound("no", "q") == BoundAnswer(exchange_not_found=True)
    assert bound("no", "no") == BoundAnswer(exchange_not_found=True, queue_not_found=True)
    assert bound("amq.topic", "no", "a.#") == BoundAnswer(queue_not_found=True)
    assert bound("amq.topic", "no", "b") == BoundAnswer(queue_not_found=True, key_not_matched=True)
    assert bound("amq.topic", "other") == BoundAnswer(queue_not_matched=True)
    assert bound("amq.topic", "other", "a.#") == BoundAnswer(queue_not_matched=True)
    assert bound("amq.topic", "other", "b") == BoundAnswer(
        queue_not_matched=True, key_not_matched=True
    )
    ask(house, Order(orders, "other", "amq.topic", "b"))
    assert bound("amq.topic", "other", "a.#") == BoundAnswer(key_not_matched=True)
    assert bound("amq.match", "other", arguments={"a": 1}) == BoundAnswer(queue_not_matched=True)
    assert bound("amq.match", "other", "x", {"a": 2}) == BoundAnswer(
        queue_not_matched=True, key_not_matched=True, arguments_not_matched=True
    )
    assert bound("amq.topic", "q", "none") == BoundAnswer(key_not_matched=True)
    assert bound("amq.match", "q", "k", {"a": 2}) == BoundAnswer(arguments_not_matched=True)


def test_of_two_who_browse_one_acquires_and_nobody_else_gets_the_message(house: House) -> None:
    publish(house, "q", "a", "b")
    with house.store_that_does_not_answer():
        first, second = acquired(house, "one"), acquired(house, "two")
        assert first == []
        assert isinstance(second[0], NotAcquired)
        waiting = consumer(house, credit=5)
    assert first == [None]
    assert bodies(waiting) == ["b"]
    entry = house.broker.calls.entry("q", 1)
    assert entry is not None
    assert entry.acquired_by == "one"
    house.broker.settlement.give_back((1,), "q", "one", failed=True)
    house.run()
    assert bodies(waiting) == ["a"]
    assert house.broker.queues["q"].delivery_count(1) == 1


def test_what_was_acquired_is_removed_by_its_holder(house: House) -> None:
    publish(house, "q", "a")
    answers = acquired(house, "one")
    house.run()
    assert answers == [None]
    removed: list[StoreError | None] = []
    house.broker.settlement.remove(
        [1], "q", "one", lambda _ended, outcomes: removed.extend(outcomes)
    )
    house.run()
    assert removed == [None]
    assert entries(house) == []


def test_what_another_broker_on_the_store_has_is_not_acquired(house: House) -> None:
    publish(house, "q", "a")
    house.calls.make(AcquireCall((1,), "q", "another broker"), nobody)
    answers = acquired(house, "one")
    house.run()
    assert isinstance(answers[0], NotAcquired)
    assert 1 in house.broker.queues["q"].elsewhere  # on its queue, until that one decides


def test_what_is_not_there_is_refused(house: House) -> None:
    assert isinstance(acquired(house, "one")[0], InvalidRequest)
    publish(house, "q", "a")
    assert isinstance(acquired(house, "one", 77)[0], InvalidRequest)


def test_an_acquisition_that_nobody_knows_of_is_given_back(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(house, "q", "a")

    make = house.calls.make

    def fail(call: StoreCall, on_done: OnComplete, *others: Any) -> None:
        if isinstance(call, AcquireCall):
            house.calls.answer((on_done, Unavailable("no room")))
        else:
            make(call, on_done, *others)

    with monkeypatch.context() as patched:
        patched.setattr(house.calls, "make", fail)
        answers = acquired(house, "one")
        house.run()
    assert isinstance(answers[0], Unavailable)
    assert house.broker.queues["q"].held_count == 1
    again = house.restarted()
    assert bodies(consumer(again, credit=1)) == ["a"]


def test_a_limited_delete_refuses_what_is_used_or_not_empty_whatever_the_force(
    house: House,
) -> None:
    publish(house, "q", "a")
    limited = delete("q")._replace(if_empty=True)
    with pytest.raises(InvalidRequest, match="has 1 messages, so it is not empty: purge"):
        ask(house, limited)
    client: Client = consumer(house)
    with pytest.raises(InvalidRequest, match="has 1 consumers, so it is in use"):
        ask(house, delete("q")._replace(if_unused=True))
    client.vanish()
    assert ask(house, delete("q")._replace(if_unused=True))["messages_lost"] == 1
    house.broker.create_queue(Queue("q"), lambda _error: None)
    house.run()
    assert ask(house, limited)["changed"]


class Elsewhere:
    """Another broker, which decides: it deletes, and has purged three."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def delete(self, order: Order, on_told: OnTold) -> None:
        self.asked.append(order)
        on_told(None, {"messages_lost": 1})

    def purge(self, queue: str, on_purged: OnPurged) -> None:
        self.asked.append(queue)
        on_purged(None, Answer(done=3))


def test_where_another_broker_decides_it_deletes_and_purges_and_nothing_is_done_here(
    house: House,
) -> None:
    publish(house, "q", "a")
    administration, elsewhere = house.broker.administration, Elsewhere()
    administration.decider = elsewhere
    limited = delete("q")._replace(if_empty=True, if_unused=True)
    assert ask(house, limited)["messages_lost"] == 1
    answers: list[tuple[StoreError | None, Answer]] = []
    administration.purge("q", lambda _so_far: True, lambda *told: answers.append(told))
    assert answers == [(None, Answer(done=3))]
    assert elsewhere.asked == [limited, "q"]
    assert entries(house) == [1]
