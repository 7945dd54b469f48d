"""Bulk operations and dead letters inside the broker: what consumers see of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import proton
import pytest

from broker_shim.broker.orders import bulk_operations as embedded_bulk
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.broker.queues.queue_index import Cursor
from broker_shim.durability import TerminusDurability
from broker_shim.errors import StoreError, Unavailable
from broker_shim.serve.broker_recovery import recover
from broker_shim.store.interface import Queue
from sparkstore.core.records import Kind
from sparkstore.operations.bulk import Action, Answer, Request
from tests.support.amqp.bench import Bench, received
from tests.support.stores.stores import RecordedMessageStore, read

Answers = list[tuple[StoreError | None, Answer]]


@pytest.fixture
def store() -> Iterator[RecordedMessageStore]:
    it = RecordedMessageStore([])
    yield it
    it.close()


@pytest.fixture
def bench(store: RecordedMessageStore, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Time stands still, for the store and for the broker."""
    monkeypatch.setattr(embedded_bulk, "wall_us", lambda: 0)
    it = Bench(store)
    it.ours.now_us = lambda: 0
    return it


def create(bench: Bench, name: str, **arguments: Any) -> QueueDispatch:
    bench.broker.create_queue(Queue(name, arguments=arguments), lambda _error: None)
    bench.run()
    return bench.broker.queues[name]


def waiting(bench: Bench, queue: str) -> list[int]:
    return [each for _place, each in bench.broker.queues[queue].browse(Cursor(), 10**6)]


def ask(bench: Bench, request: Request) -> Answers:
    answers: Answers = []
    bench.broker.bulk.run(request, lambda error, answer: answers.append((error, answer)))
    bench.run()
    return answers


def outcomes(store: RecordedMessageStore) -> list[str | None]:
    return [record.detail for record in read(store.sink.log) if record.kind is Kind.DEQUEUED]


def test_what_a_consumer_holds_stays_with_it_while_the_rest_moves(bench: Bench) -> None:
    create(bench, "q")
    create(bench, "other")
    bench.publish(5, 10)
    link = bench.receiver(credit=2)
    bench.exchange()
    assert ask(bench, Request(Action.MOVE, "q", (1, 2, 3, 4, 5), "other")) == [
        (None, Answer(done=3, left=2))
    ]
    assert waiting(bench, "other") == [3, 4, 5]
    for delivery in received(link):
        delivery.update(proton.Delivery.ACCEPTED)
        delivery.settle()
    bench.exchange()
    assert len(bench.broker.queues["q"]) == 0
    assert outcomes(bench_store(bench))[3:] == [None, None]
    assert bench.broker.queues["q"].departed == {"moved": 3, "accepted": 2}


def bench_store(bench: Bench) -> RecordedMessageStore:
    store = bench.calls._store
    assert isinstance(store, RecordedMessageStore)
    return store


def test_no_consumer_gets_a_message_while_it_is_being_moved(bench: Bench) -> None:
    create(bench, "q")
    create(bench, "other")
    bench.publish(1, 10)
    link = bench.receiver()
    bench.exchange()
    bench.broker.bulk.run(Request(Action.MOVE, "q", (1,), "other"), lambda _error, _answer: None)
    link.flow(1)
    bench.exchange()
    assert received(link) == []
    assert waiting(bench, "other") == [1]


def test_what_the_store_refuses_is_back_in_its_old_place(
    bench: Bench, store: RecordedMessageStore
) -> None:
    create(bench, "q")
    create(bench, "other")
    bench.publish(3, 10)
    store.sink.is_full = True
    [(error, answer)] = ask(bench, Request(Action.MOVE, "q", (1, 2), "other"))
    assert isinstance(error, Unavailable)
    assert answer == Answer()
    assert (waiting(bench, "q"), waiting(bench, "other")) == ([1, 2, 3], [])
    store.sink.is_full = False
    assert ask(bench, Request(Action.MOVE, "q", (1, 2), "other")) == [(None, Answer(done=2))]


def test_a_transient_message_moves_with_its_content(
    bench: Bench, store: RecordedMessageStore
) -> None:
    bench.broker.create_queue(Queue("q", TerminusDurability.NONE), lambda _error: None)
    create(bench, "kept")
    bench.publish(1, 10)
    assert ask(bench, Request(Action.MOVE, "q", (1,), "kept")) == [(None, Answer(done=1))]
    assert waiting(bench, "kept") == [1]
    assert store.load(1).body[-10:] == b"x" * 10


def test_a_transient_target_is_refused(bench: Bench) -> None:
    create(bench, "q")
    bench.broker.create_queue(Queue("lost", TerminusDurability.NONE), lambda _error: None)
    bench.run()
    bench.publish(1, 10)
    [(error, _)] = ask(bench, Request(Action.MOVE, "q", (1,), "lost"))
    assert "would not survive" in str(error)
    assert waiting(bench, "q") == [1]


def test_an_expired_message_goes_to_the_dead_letters_instead_of_a_consumer(
    bench: Bench, store: RecordedMessageStore
) -> None:
    create(bench, "q", message_ttl_ms=0, dead_letter_queue="dead")
    bench.publish(2, 10)
    link = bench.receiver(credit=5)
    bench.exchange()
    assert received(link) == []
    assert waiting(bench, "dead") == [1, 2]
    entry = bench.calls.entry("dead", 1)
    assert entry is not None
    assert entry.expires_at is None
    assert '"reason": "expired"' in (outcomes(store)[0] or "")


@pytest.mark.parametrize("arguments", [{}, {"dead_letter_queue": "dead"}], ids=str)
def test_a_link_that_settles_as_it_sends_gets_no_expired_message_either(
    bench: Bench, store: RecordedMessageStore, arguments: dict[str, str]
) -> None:
    create(bench, "q", message_ttl_ms=0, **arguments)
    bench.publish(1, 10)
    link = bench.receiver(credit=5, snd_settle_mode=proton.Link.SND_SETTLED)
    bench.exchange()
    bench.run_delayed()
    bench.exchange()
    assert received(link) == []
    assert len(bench.broker.queues["q"]) == 0
    assert ("dead" in bench.broker.queues) == bool(arguments)
    assert "expired" in (outcomes(store)[0] or "")
    how = "dead-lettered" if arguments else "expired"
    assert bench.broker.queues["q"].departed == {how: 1}


def test_a_message_that_failed_once_too_often_is_dead_lettered_when_it_is_given_back(
    bench: Bench,
) -> None:
    create(bench, "q", max_delivery_count=1, dead_letter_queue="dead")
    bench.publish(1, 10)
    link = bench.receiver(credit=9)
    for _ in range(2):
        bench.exchange()
        (delivery,) = received(link)
        delivery.local.failed = True
        delivery.update(proton.Delivery.MODIFIED)
        delivery.settle()
    bench.exchange()
    assert received(link) == []
    assert waiting(bench, "dead") == [1]
    assert bench.broker.metrics.dead_lettered == 1


@pytest.mark.parametrize(("said", "name"), [("a::dead", "a::dead"), ("dead::dead", "dead")])
def test_a_dead_letter_queue_may_be_named_in_full(bench: Bench, said: str, name: str) -> None:
    create(bench, "q", message_ttl_ms=0, dead_letter_queue=said)
    bench.publish(1, 10)
    bench.receiver(credit=5)
    bench.exchange()
    assert waiting(bench, name) == [1]
    resolve = bench.broker.destinations.addresses.resolve
    assert resolve("dead") == resolve(name) is not None


def test_a_message_given_back_unharmed_is_delivered_again(bench: Bench) -> None:
    create(bench, "q", max_delivery_count=0, dead_letter_queue="dead")
    bench.publish(1, 10)
    link = bench.receiver(credit=9)
    bench.exchange()
    (delivery,) = received(link)
    delivery.update(proton.Delivery.RELEASED)
    delivery.settle()
    bench.exchange()
    assert len(received(link)) == 1


def test_what_a_crash_made_fail_once_too_often_is_dead_lettered_at_the_start(
    store: RecordedMessageStore, bench: Bench
) -> None:
    create(bench, "q", max_delivery_count=0, dead_letter_queue="dead")
    bench.publish(2, 10)
    bench.receiver(credit=1)
    bench.exchange()  # and there the broker crashes
    with closing(RecordedMessageStore(store.sink.log)) as reopened:
        again = Bench(reopened)
        recover(reopened, again.host)
        again.run()
        assert (waiting(again, "q"), waiting(again, "dead")) == ([2], [1])


def test_a_requeued_message_comes_last_and_as_if_it_had_never_failed(bench: Bench) -> None:
    queue = create(bench, "q")
    bench.publish(2, 10)
    for _ in range(3):
        queue.withdraw([1])
        queue.released(1, delivery_failed=True)
    assert ask(bench, Request(Action.REQUEUE, "q", (1,))) == [(None, Answer(done=1))]
    assert waiting(bench, "q") == [2, 1]
    assert queue.delivery_count(1) == 0


def test_what_a_full_target_leaves_of_a_run_is_given_back_as_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, given_back = create(bench, "q"), list[Sequence[int]]()
    create(bench, "t", max_depth=10)
    bench.publish(100, 10)
    waits_again = queue.waits_again

    def counted(message_ids: Sequence[int]) -> None:
        given_back.append(message_ids)
        waits_again(message_ids)

    monkeypatch.setattr(queue, "waits_again", counted)
    request = Request(Action.REDRIVE, "q", range(1, 101), "t")
    assert ask(bench, request) == [(None, Answer(done=10, full=90))]
    assert given_back == [range(11, 101)]
    assert (waiting(bench, "t"), waiting(bench, "q")) == ([*range(1, 11)], [*range(11, 101)])
