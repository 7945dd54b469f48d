"""Changes of place inside the broker: what consumers see of them."""

from __future__ import annotations

from collections.abc import Iterator

import proton
import pytest

from broker_shim.errors import StoreError, Unavailable
from broker_shim.listener_1_0.messages.message import parse
from broker_shim.store.interface import Queue
from sparkstore.operations.bulk import Answer, MessageDraft
from sparkstore.operations.placement import Placement, PlacementRequest
from tests.support.amqp.bench import Bench, received
from tests.support.stores.stores import RecordedMessageStore, done


@pytest.fixture
def store() -> Iterator[RecordedMessageStore]:
    it = RecordedMessageStore([])
    yield it
    it.close()


@pytest.fixture
def bench(store: RecordedMessageStore) -> Bench:
    it = Bench(store)
    for name in ("q", "other"):
        it.broker.create_queue(Queue(name), lambda _error: None)
    it.run()
    return it


def draft(body: str) -> MessageDraft:
    return MessageDraft(*parse(bytes(proton.Message(body=body).encode()), now_us=0))


def place(bench: Bench, *placements: Placement) -> tuple[StoreError | None, Answer]:
    answers: list[tuple[StoreError | None, Answer]] = []
    request = PlacementRequest(placements, "0123abcd")
    bench.broker.placements.run(request, lambda *answer: answers.append(answer))
    bench.run()
    [answer] = answers
    return answer


def test_a_consumer_gets_what_was_placed_in_its_order_with_its_failed_deliveries(
    bench: Bench,
) -> None:
    bench.publish(1, 1, "other")
    bench.publish(2, 1, "q")
    answer = place(
        bench,
        Placement(target="q", draft=draft("new"), delivery_count=3),
        Placement(1, "other", "q", delivery_count=2),
        Placement(2, "q", "q", is_shift=True),
    )
    assert answer == (None, Answer(done=3))
    link = bench.receiver(credit=10)
    bench.exchange()
    counts = []
    while link.current is not None and not link.current.partial:
        message = proton.Message()
        message.decode(link.recv(1 << 20))
        counts.append((message.body if message.body == "new" else "old", message.delivery_count))
        link.advance()
    assert counts == [("old", 0), ("new", 3), ("old", 2), ("old", 0)]
    assert len(bench.broker.queues["other"]) == 0


def test_what_a_consumer_holds_is_left_to_it_with_what_was_to_replace_it(bench: Bench) -> None:
    bench.publish(2, 1)
    link = bench.receiver(credit=1)
    bench.exchange()
    answer = place(
        bench, Placement(1, "q", "other", draft("new")), Placement(2, "q"), Placement(9, "q")
    )
    assert answer == (None, Answer(done=1, left=1, gone=1))
    assert len(bench.broker.queues["other"]) == 0
    for delivery in received(link):
        delivery.update(proton.Delivery.ACCEPTED)
        delivery.settle()
    bench.exchange()
    assert len(bench.broker.queues["q"]) == 0


def test_what_a_member_has_acquired_is_left_to_it_while_what_is_beside_it_is_placed(
    bench: Bench, store: RecordedMessageStore
) -> None:
    """The broker has not heard of it yet: to its own dispatch all of the run waits."""
    bench.publish(5, 1)
    done(store.acquire, 3, "q", "member/1")
    answer = place(bench, Placement(1, "q", "other", messages=5))
    assert answer == (None, Answer(done=4, left=1))
    assert [*bench.calls.entries("other")] == [1, 2, 4, 5]
    [(left, entry)] = bench.calls.entries("q").items()
    assert (left, entry.acquired_by) == (3, "member/1")
    assert [len(bench.broker.queues[name]) for name in ("q", "other")] == [1, 4]
    done(store.release, 3, "q", "member/1", delivery_failed=False)
    link = bench.receiver(credit=10)
    bench.exchange()
    assert len(received(link)) == 1


def test_what_the_store_refuses_is_back_in_its_old_place(
    bench: Bench, store: RecordedMessageStore
) -> None:
    bench.publish(3, 1)
    store.sink.is_full = True
    error, answer = place(bench, Placement(1, "q", "other"), Placement(2, "q", "q"))
    assert (type(error), answer) == (Unavailable, Answer())
    store.sink.is_full = False
    assert [*bench.calls.entries("q")] == [1, 2, 3]
    link = bench.receiver(credit=10)
    bench.exchange()
    assert len(received(link)) == 3
