"""Links to clients that do not read, over stores that cannot: proton on both sides, no socket."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import proton
import pytest

from broker_shim.broker.queues.queue_index import Cursor
from broker_shim.durability import TerminusDurability
from broker_shim.errors import CorruptData, Fenced, Unavailable
from broker_shim.listener_1_0.messages.message import parse
from broker_shim.listener_1_0.sending import outgoing_link
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import Queue
from tests.support.amqp.bench import LIMIT_BYTES, Bench, Unreadable, received


@pytest.fixture
def store() -> Iterator[Unreadable]:
    it = Unreadable()
    yield it
    it.close()


@pytest.fixture
def bench(store: Unreadable) -> Iterator[Bench]:
    it = Bench(store)
    it.broker.ensure_queue("q", lambda _error: None)
    it.run()
    yield it
    it.ours.lost()


def test_a_client_that_gives_endless_credit_and_does_not_read_holds_about_a_batch(
    bench: Bench, store: Unreadable
) -> None:
    bench.publish(10_000, 1024)
    bench.receiver(credit=(1 << 31) - 1)
    bench.to_broker()
    assert 0 < store.acquired <= LIMIT_BYTES // 1024 + outgoing_link._UNDER_WAY + 1


def test_a_link_takes_the_next_while_the_first_are_in_the_log(
    bench: Bench, store: Unreadable
) -> None:
    bench.publish(1_000, 10)
    bench.receiver(credit=1_000)
    bench.step_to_broker()
    taken = []
    for _turn in range(3):  # no answer of the store comes in between
        bench.broker.dispatch()
        taken.append(store.acquired)
        for _delay_s, call in [bench.delayed.pop() for _ in bench.delayed[:]]:
            call()
    assert taken == [outgoing_link._TURN, 1_000, 1_000]


def test_endless_credit_still_gets_everything_once_it_reads(bench: Bench) -> None:
    bench.publish(1_000, 1024)
    link = bench.receiver(credit=(1 << 31) - 1)
    bench.exchange()
    assert len(received(link)) == 1_000


def test_a_consumer_of_one_at_a_time_has_the_next_acquired_with_its_acceptance(
    bench: Bench, store: Unreadable
) -> None:
    bench.publish(2, 10)
    link = bench.receiver(credit=1)
    bench.exchange()
    (first,) = received(link)
    first.update(proton.Delivery.ACCEPTED)
    first.settle()
    link.flow(1)
    assert store.acquired == 1
    bench.step_to_broker()  # before the loop sleeps: both are of one group of a log
    assert store.acquired == 2
    bench.exchange()
    assert [each.tag for each in received(link)] != [first.tag]


@pytest.mark.parametrize("mode", [proton.Link.SND_MIXED, proton.Link.SND_SETTLED])
def test_a_corrupt_message_is_left_held_and_the_others_go_on(
    bench: Bench, store: Unreadable, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    bench.publish(3, 10)
    store.errors[2] = CorruptData("a piece is missing")
    link = bench.receiver(credit=10, snd_settle_mode=mode)
    with caplog.at_level(logging.ERROR):
        bench.exchange()
        bench.run_delayed()
    bench.exchange()
    assert len(received(link)) == 2
    assert bench.fatal == []
    assert len([each for each in caplog.records if each.levelno >= logging.WARNING]) == 1
    said = "message 2 of 'q' cannot be read, it is left held: a piece is missing"
    assert caplog.records[-1].getMessage() == said


def test_a_message_that_cannot_be_framed_does_not_stop_those_that_would_go_with_it(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    header, body = parse(bytes(proton.Message(body=b"x", durable=True).encode()), now_us=0)
    broken = header._replace(header=b"no section")
    for each in (header, broken, header, header):
        bench.broker.publish(each, body, ("q",), lambda _error: None)
    bench.run()
    link = bench.receiver(credit=10)
    with caplog.at_level(logging.ERROR):
        bench.exchange()
    tags = [int.from_bytes(each.tag.encode("latin-1")) for each in received(link)]
    assert tags == [1, 3, 4]
    errors = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert [each.split(", it is")[0] for each in errors] == ["message 2 of 'q' cannot be read"]
    assert bench.broker.queues["q"].held_count == 4
    assert bench.broker.metrics.delivered == 3


@pytest.mark.parametrize("odd", [{"expires_at": 1}, {"body_bytes": 500}])
def test_what_has_expired_or_is_too_large_stays_and_the_others_go(
    bench: Bench, odd: dict[str, int]
) -> None:
    header, _body = parse(bytes(proton.Message(body=b"x", durable=True).encode()), now_us=0)
    for each in (header, header._replace(**odd), header):
        bench.broker.publish(each, bytes(each.body_bytes), ("q",), lambda _error: None)
    bench.run()
    link = bench.session.receiver("r")
    link.source.address, link.max_message_size = "q", 400
    link.open()
    bench.exchange()
    link.flow(10)
    bench.exchange()
    tags = [int.from_bytes(each.tag.encode("latin-1")) for each in received(link)]
    assert tags == [1, 3]
    metrics = bench.broker.metrics
    assert (metrics.delivered, metrics.expired) == (2, "expires_at" in odd)


def test_those_that_are_sent_together_tell_how_often_each_failed_before(bench: Bench) -> None:
    bench.publish(3, 10)
    for failed in (2, 1, 0):
        link = bench.receiver(credit=failed)
        bench.exchange()
        for delivery in received(link):
            delivery.local.failed = True
            delivery.update(proton.Delivery.MODIFIED)
            delivery.settle()
        bench.exchange()
        link.close()
        bench.exchange()
    link = bench.receiver(credit=3)
    bench.exchange()
    counts = []
    while link.current is not None:
        message = proton.Message()
        message.decode(bytes(link.recv(link.current.pending)))
        counts.append(message.delivery_count)
        link.advance()
    assert counts == [2, 1, 0]


@pytest.mark.parametrize("mode", [proton.Link.SND_MIXED, proton.Link.SND_SETTLED])
def test_more_corrupt_messages_than_credit_do_not_stop_a_consumer(
    bench: Bench, store: Unreadable, mode: int
) -> None:
    bench.publish(9, 10)
    store.errors |= {number: CorruptData("a piece is missing") for number in range(1, 9)}
    link = bench.receiver(credit=1, snd_settle_mode=mode)
    for _ in range(9):
        bench.exchange()
        bench.run_delayed()
    bench.exchange()
    assert len(received(link)) == 1


@pytest.mark.parametrize("mode", [proton.Link.SND_MIXED, proton.Link.SND_SETTLED])
def test_a_message_that_is_not_readable_now_is_tried_again_later(
    bench: Bench, store: Unreadable, mode: int
) -> None:
    bench.publish(1, 10)
    store.errors[1] = Unavailable("no answer")
    link = bench.receiver(credit=10, snd_settle_mode=mode)
    for _ in range(3):
        bench.exchange()
        bench.run_delayed()
    assert received(link) == []
    store.errors.clear()
    for _ in range(2):
        bench.exchange()
        bench.run_delayed()
    bench.exchange()
    assert len(received(link)) == 1


def test_a_message_that_cannot_be_acquired_now_is_tried_again_later(
    bench: Bench, store: Unreadable
) -> None:
    bench.publish(1, 10)
    store.refusals.append(Unavailable("no room"))
    link = bench.receiver(credit=1)
    bench.exchange()
    assert received(link) == []
    bench.run_delayed()
    bench.exchange()
    assert len(received(link)) == 1


def test_a_link_that_wants_them_settled_does_not_have_all_in_memory_at_once(bench: Bench) -> None:
    bench.publish(9, 1 << 20)
    link = bench.receiver(snd_settle_mode=proton.Link.SND_SETTLED)
    link.flow(9)
    bench.step_to_broker()
    bench.broker.dispatch()
    assert len(bench.broker.queues["q"].browse(Cursor(), 9)) == 5
    bench.run()
    bench.exchange()
    assert len(received(link)) == 9


def test_what_left_its_queue_for_a_link_is_sent_even_while_the_broker_stops(bench: Bench) -> None:
    bench.publish(1, 10)
    link = bench.receiver(snd_settle_mode=proton.Link.SND_SETTLED)
    link.flow(1)
    bench.step_to_broker()
    bench.broker.dispatch()  # it is being taken off its queue
    bench.broker.is_stopping = True
    bench.run()
    bench.to_client()
    assert len(received(link)) == 1


def test_a_fenced_store_is_still_the_end(bench: Bench, store: Unreadable) -> None:
    bench.publish(1, 10)
    store.errors[1] = Fenced("epoch 2 owns the root")
    bench.receiver(credit=1)
    bench.exchange()
    assert bench.fatal


def test_a_browser_passes_over_what_is_corrupt_and_waits_for_what_is_not_readable_now(
    bench: Bench, store: Unreadable
) -> None:
    bench.publish(3, 10)
    store.errors |= {1: CorruptData("a piece is missing"), 2: Unavailable("no answer")}
    link = bench.receiver(credit=10, distribution_mode=proton.Terminus.DIST_MODE_COPY)
    bench.exchange()
    assert received(link) == []
    del store.errors[2]
    bench.run_delayed()
    bench.exchange()
    assert len(received(link)) == 2


def test_a_fault_in_dispatching_one_queue_does_not_stop_the_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dispatch() -> None:
        raise ValueError("a fault")

    bench.broker.ensure_queue("other", lambda _error: None)
    bench.run()
    monkeypatch.setattr(bench.broker.queues["other"], "dispatch", dispatch)
    bench.publish(1, 10, "q", "other")
    link = bench.receiver(credit=1)
    bench.exchange()
    assert len(received(link)) == 1


def test_a_rejection_that_is_not_utf_8_ends_the_connection_and_takes_nothing(bench: Bench) -> None:
    bench.publish(1, 10)
    link = bench.receiver(credit=1)
    bench.exchange()
    (delivery,) = received(link)
    delivery.local.condition = proton.Condition("name", "DESCRIPTION")
    delivery.update(proton.Delivery.REJECTED)
    pending = bench.transport.pending()
    disposition = bytes(bench.transport.peek(pending) or b"").replace(b"DESC", b"\xff\xfe\xff\xfe")
    assert b"\xff\xfe" in disposition
    bench.ours.receive(disposition)
    bench.run()
    assert bench.ours.is_over
    assert bench.broker.metrics.rejected == 0
    assert len(bench.broker.queues["q"].browse(Cursor(), 9)) == 1


def test_a_decision_that_fails_leaves_the_message_to_be_given_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_delivery: Any) -> dict[str, str]:
        raise ValueError("a fault")

    bench.publish(1, 10)
    link = bench.receiver(credit=1)
    bench.exchange()
    (delivery,) = received(link)
    monkeypatch.setattr(outgoing_link, "rejection", failing)
    delivery.update(proton.Delivery.REJECTED)
    bench.to_broker()
    bench.ours.lost()
    bench.run()
    assert len(bench.broker.queues["q"].browse(Cursor(), 9)) == 1


def test_a_large_durable_message_arrives_on_a_durable_and_on_a_transient_queue(
    tmp_path: Path,
) -> None:
    store = DeltaMessageStore(tmp_path / "root")
    bench = Bench(store)
    for queue in (Queue("kept"), Queue("lost", TerminusDurability.NONE)):
        bench.broker.create_queue(queue, lambda _error: None)
    bench.run()
    assert bench.publish(1, 2 << 20, "kept", "lost") == [None]
    for name in ("kept", "lost"):
        ((_place, waiting),) = bench.broker.queues[name].browse(Cursor(), 9)
        assert store.load(waiting).body == b"x" * (2 << 20)
    store.close()
