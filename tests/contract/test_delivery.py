"""The rules of delivery hold for every protocol, at a broker alone and at a member of a service.

Each test is a rule. It runs in each cell of {AMQP 1.0, AMQP 0-10} × {alone, at a member}, in the
words of `Driver`. A queue argument or a counter without a rule fails here, and so does a rule that
a protocol's driver does not answer, as no such driver can be made.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import count
from time import time_ns

import pytest

from broker_shim.broker.metrics import Metrics
from broker_shim.broker.settings import BrokerSettings, DurableMessages
from broker_shim.broker.storage.header_reader import OnRead
from broker_shim.errors import Full, Unavailable
from broker_shim.security.security_counts import SecurityCounts
from sparkstore.core.annotations import annotations_of
from sparkstore.core.queue_arguments import QueueArguments
from tests.support.delivery.amqp_0_10 import Driver010
from tests.support.delivery.amqp_1_0 import Driver10
from tests.support.delivery.driver import Driver
from tests.support.delivery.places import HOMES, DeliveryPlace, Home

DRIVERS: dict[str, type[Driver]] = {each.name: each for each in (Driver10, Driver010)}
PROBES = 20
_numbers = count(1)


class Cell:
    """One protocol at one place, with queues of its own.

    Attributes:
        place: The broker.
        queue: Its queue.
        dead: The queue for its dead letters.
        other: A queue that is neither.
    """

    def __init__(self, home: Home, driver: type[Driver], settings: BrokerSettings) -> None:
        self._home, self._driver = home, driver
        self.place: DeliveryPlace = home.place(settings)
        number = next(_numbers)
        self.queue, self.dead, self.other = (f"{each}{number}" for each in ("q", "dead", "other"))

    def anew(self, settings: BrokerSettings) -> Cell:
        """Another one, of a broker with other settings."""
        return Cell(self._home, self._driver, settings)

    def client(self, *, has_small_frames: bool = False) -> Driver:
        """A client of the protocol."""
        return self._driver(self.place, has_small_frames=has_small_frames)

    def with_queue(self, *, has_small_frames: bool = False, **arguments: object) -> Driver:
        """A client, the queue as made with arguments, and one for its dead letters."""
        client = self.client(has_small_frames=has_small_frames)
        self.place.create(self.dead)
        client.declare(self.queue, **arguments)
        return client

    def counts(self, *names: str) -> list[int]:
        """Some of the broker's counters."""
        return [self.place.count(each) for each in names]

    def await_counts(self, before: list[int], **wanted: int) -> None:
        """Wait until counters have risen by so much, in the order of `before`."""
        after = [there + more for there, more in zip(before, wanted.values(), strict=True)]
        self.place.until(lambda: self.counts(*wanted) == after, f"counters rise by {wanted}")


@pytest.fixture(scope="module", params=HOMES)
def home(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Home]:
    there = Home(request.param, tmp_path_factory.mktemp("home"))
    yield there
    there.close()


@pytest.fixture(params=DRIVERS)
def driver(request: pytest.FixtureRequest) -> type[Driver]:
    return DRIVERS[request.param]


@pytest.fixture
def cell(home: Home, driver: type[Driver]) -> Iterator[Cell]:
    yield Cell(home, driver, BrokerSettings())
    home.end_places()


# -- messages that travel together ---------------------------------------------------------------


LENGTHS = [1, 2, 7, 1000]
CUT = [2, 7, *(pytest.param(length, marks=pytest.mark.thorough) for length in (1, 1000))]
"""Of a rule that one message has by itself below."""
_HOUR_MS = 3_600_000


def run_of(length: int, name: str = "") -> list[str]:
    """Bodies of so many messages."""
    return [f"{name}{number:04}" for number in range(length)]


@pytest.mark.parametrize("length", LENGTHS)
def test_messages_that_travel_together_stay_in_order_and_are_each_there_once(
    cell: Cell, length: int
) -> None:
    client, sent = cell.with_queue(), run_of(length)
    assert client.send(cell.queue, *sent) == [True] * length
    assert [*cell.place.entries(cell.queue).values()].count(None) == 0
    client.consume(cell.queue, credit=length)
    came = client.receive(length)
    assert client.bodies() == sent
    begin, end = length // 3, length - length // 3
    client.accept(*came[begin:end])  # cuts what was sent, acquired and delivered together in three
    cell.place.await_depth(cell.queue, length - (end - begin))
    client.lose()
    second, left = cell.client(), sent[:begin] + sent[end:]
    second.consume(cell.queue, credit=length)
    came = second.receive(len(left))
    assert second.bodies() == left
    assert all(delivery.is_redelivered for delivery in came)
    second.accept(*came)
    cell.place.await_depth(cell.queue, 0)


@pytest.mark.parametrize("length", [1, 2, 7])
@pytest.mark.parametrize("decision", ["commit", "rollback", "release", "fail", "reject"])
def test_what_is_decided_of_the_middle_of_messages_that_travel_together_is_so_of_it_alone(
    cell: Cell, decision: str, length: int
) -> None:
    client, sent = cell.with_queue(), run_of(length)
    client.send(cell.queue, *sent)
    client.consume(cell.queue, credit=length)
    begin, end = length // 3, length - length // 3
    some = client.receive(length)[begin:end]
    if decision in {"commit", "rollback"}:
        client.begin()
        client.accept(*some[1:])
        client.accept(*some[:1])  # the transaction has two parts, which are not in order
        client.commit() if decision == "commit" else client.rollback()
    elif decision == "reject":
        client.reject(*some)
    else:
        client.release(*some, failed=decision == "fail")
    is_gone = decision in {"commit", "reject"}
    left = sent[:begin] + sent[end:] if is_gone else sent
    cell.place.await_depth(cell.queue, len(left))
    cell.place.run()
    client.lose()
    second = cell.client()
    second.consume(cell.queue, credit=length)
    came = second.receive(len(left))
    assert [delivery.body for delivery in came] == left
    again = [delivery.body for delivery in came if delivery.is_redelivered]
    assert again == (sent[:begin] + sent[end:] if decision == "release" else left)
    second.accept(*came)
    cell.place.await_depth(cell.queue, 0)


@pytest.mark.parametrize("length", LENGTHS)
def test_a_consumer_that_settles_at_once_gets_what_travels_together_once(
    cell: Cell, length: int
) -> None:
    client, sent = cell.with_queue(), run_of(length)
    client.send(cell.queue, *sent)
    client.consume(cell.queue, credit=length, settled=True)
    client.receive(length)
    assert client.bodies() == sent
    cell.place.await_depth(cell.queue, 0)


def test_who_settles_every_second_message_has_the_others_still(cell: Cell) -> None:
    client, sent = cell.with_queue(), [f"{number:04}" for number in range(20)]
    client.send(cell.queue, *sent)
    client.consume(cell.queue, credit=20)
    came = client.receive(20)
    for delivery in came[::2]:
        client.accept(delivery)
    cell.place.await_depth(cell.queue, 10)
    client.accept(*came)  # half of it once more
    cell.place.await_depth(cell.queue, 0)


def test_a_limit_cuts_messages_that_travel_together(cell: Cell) -> None:
    client = cell.with_queue(max_depth=3, when_full="reject")
    outcomes = client.send(cell.queue, *"abcdefg")
    assert outcomes[:4] == [True, True, True, False]
    assert not any(outcomes[4:])  # each is told, or its session has ended with the first
    assert len(cell.place.entries(cell.queue)) == 3


@pytest.mark.parametrize("length", [2, 7, 1000])
def test_what_is_too_old_in_the_middle_of_those_that_travel_together_goes_alone(
    cell: Cell, length: int
) -> None:
    client, sent = cell.with_queue(dead_letter_queue=cell.dead), run_of(length)
    middle = length // 2
    client.send(cell.queue, *sent[:middle])
    client.send(cell.queue, "late", ttl_ms=1)
    client.send(cell.queue, *sent[middle:])
    cell.place.await_expiry(cell.queue)
    client.consume(cell.queue, credit=length)
    client.receive(length)
    assert client.bodies() == sent
    cell.place.await_depth(cell.dead, 1)


@pytest.mark.parametrize("length", CUT)
@pytest.mark.parametrize("is_committed", [True, False])
def test_a_run_that_a_transaction_sends_is_there_as_a_whole_or_not_at_all(
    cell: Cell, length: int, is_committed: bool
) -> None:
    client, sent = cell.with_queue(), run_of(length)
    client.begin()
    client.send(cell.queue, *sent)
    assert not cell.place.entries(cell.queue)
    if not is_committed:
        client.rollback()
        assert not cell.place.entries(cell.queue)
        return
    assert client.commit()
    cell.place.await_depth(cell.queue, length)
    reader = cell.client()
    reader.consume(cell.queue, credit=length)
    reader.receive(length)
    assert reader.bodies() == sent


@pytest.mark.parametrize("length", CUT)
def test_a_run_of_higher_priority_overtakes_the_others(cell: Cell, length: int) -> None:
    client, low, high = cell.with_queue(), run_of(length, "low"), run_of(length, "high")
    client.send(cell.queue, *low, priority=1)
    client.send(cell.queue, *high, priority=8)
    client.send(cell.queue, "last", priority=1)
    client.consume(cell.queue, credit=2 * length + 1)
    client.receive(2 * length + 1)
    assert client.bodies() == [*high, *low, "last"]


@pytest.mark.parametrize("length", CUT)
def test_runs_of_two_groups_go_to_one_consumer_each(cell: Cell, length: int) -> None:
    first, second = cell.with_queue(message_groups=True), cell.client()
    for consumer in (first, second):
        consumer.consume(cell.queue, credit=2 * length)
    for group in "ab":
        first.send(cell.queue, *run_of(length, group), group=group)
    count = 2 * length
    cell.place.until(lambda: len(first.got()) + len(second.got()) == count, "all of them")
    for group in "ab":
        runs = [[b for b in each.bodies() if b[0] == group] for each in (first, second)]
        assert sorted(runs) == [[], run_of(length, group)]


@pytest.mark.parametrize("length", CUT)
def test_a_selector_cuts_runs_where_it_selects(cell: Cell, length: int) -> None:
    client = cell.with_queue()
    for name in ("1 red", "2 blue", "3 red"):
        client.send(cell.queue, *run_of(length, name), properties={"colour": name[2:]})
    client.consume(cell.queue, credit=3 * length, selector="colour = 'red'")
    came = client.receive(2 * length)
    assert client.bodies() == run_of(length, "1 red") + run_of(length, "3 red")
    client.accept(*came)
    cell.place.await_depth(cell.queue, length)
    assert {*cell.place.held(cell.queue)} == {None}
    second = cell.client()
    second.consume(cell.queue, credit=length)
    second.receive(length)
    assert second.bodies() == run_of(length, "2 blue")


@pytest.mark.parametrize("length", CUT)
def test_who_browses_is_shown_a_run_of_which_some_is_taken(cell: Cell, length: int) -> None:
    client, sent = cell.with_queue(), run_of(length)
    client.send(cell.queue, *sent)
    middle = length // 2
    taker = cell.client()
    taker.consume(cell.queue, credit=max(1, middle))
    taker.receive(max(1, middle))
    client.consume(cell.queue, credit=length, browse=True)
    client.drain()
    assert client.bodies() == sent[max(1, middle) :]
    assert len(cell.place.entries(cell.queue)) == length


@pytest.mark.parametrize("length", CUT)
def test_of_a_run_of_one_key_the_last_stays(cell: Cell, length: int) -> None:
    client = cell.with_queue(last_value_key="key")
    assert all(client.send(cell.queue, *run_of(length), properties={"key": "k"}))
    assert all(client.send(cell.queue, *run_of(length, "l"), properties={"key": "l"}))
    cell.place.await_depth(cell.queue, 2)
    client.consume(cell.queue)
    client.drain()
    assert client.bodies() == [run_of(length)[-1], run_of(length, "l")[-1]]


@pytest.mark.parametrize("length", CUT)
def test_a_run_that_fails_too_often_goes_to_the_dead_letters(cell: Cell, length: int) -> None:
    client = cell.with_queue(max_delivery_count=1, dead_letter_queue=cell.dead)
    client.send(cell.queue, *run_of(length))
    client.consume(cell.queue, credit=3 * length)
    client.release(*client.receive(length), failed=True)
    again = client.receive(2 * length)[length:]
    assert [delivery.body for delivery in again] == run_of(length)
    assert all(delivery.is_redelivered for delivery in again)
    middle = length // 2
    client.accept(*again[:middle])
    client.release(*again[middle:], failed=True)
    cell.place.await_depth(cell.dead, length - middle)
    cell.place.await_depth(cell.queue, 0)


@pytest.mark.parametrize("length", CUT)
def test_of_a_run_the_rest_is_taken_back_when_its_time_is_over(cell: Cell, length: int) -> None:
    slow, sent = cell.with_queue(lock_timeout_ms=_HOUR_MS), run_of(length)
    slow.send(cell.queue, *sent)
    slow.consume(cell.queue, credit=length)
    begin, end = length // 3, length - (length + 1) // 2
    slow.accept(*slow.receive(length)[begin:end])
    cell.place.await_depth(cell.queue, length - (end - begin))
    cell.place.pass_s(3_601)
    other = cell.client()
    other.consume(cell.queue, credit=length)
    left = sent[:begin] + sent[end:]
    assert all(delivery.is_redelivered for delivery in other.receive(len(left)))
    assert other.bodies() == left


@pytest.mark.parametrize("length", CUT)
def test_a_run_that_is_to_wait_is_hidden_and_comes_in_its_order(cell: Cell, length: int) -> None:
    client, sent = cell.with_queue(), run_of(length)
    client.send(cell.queue, *sent, delivery={"x-opt-delivery-delay": 100})
    client.send(cell.queue, "now")
    client.consume(cell.queue, credit=length + 1)
    client.receive(length + 1)
    assert [body for body in client.bodies() if body != "now"] == sent


@pytest.mark.parametrize("length", CUT)
def test_of_a_run_of_one_id_the_first_is_there(cell: Cell, length: int) -> None:
    client = cell.with_queue(duplicate_window_ms=_HOUR_MS)
    assert all(client.send(cell.queue, *run_of(length), message_id="one"))
    assert all(client.send(cell.queue, *run_of(length, "again"), message_id="one"))
    cell.place.await_depth(cell.queue, 1)
    client.consume(cell.queue)
    client.receive(1)
    assert client.bodies() == ["0000"]


@pytest.mark.parametrize("length", CUT)
def test_of_a_run_what_failed_is_hidden_for_the_delay_of_a_retry(cell: Cell, length: int) -> None:
    client = cell.with_queue(retry_delay_ms=_HOUR_MS)
    client.send(cell.queue, *run_of(length))
    client.consume(cell.queue, credit=2 * length)
    middle = length // 2
    came = client.receive(length)
    client.release(*came[middle:], failed=True)
    client.release(*came[:middle])
    client.receive(length + middle)
    client.drain()
    assert client.bodies() == run_of(length) + run_of(middle)
    assert cell.place.held(cell.queue)[middle:] == [None] * (length - middle)


@pytest.mark.parametrize("length", CUT)
def test_a_run_is_that_of_the_one_active_consumer_until_it_leaves(cell: Cell, length: int) -> None:
    first, second = cell.with_queue(single_active_consumer=True), cell.client()
    for consumer in (first, second):
        consumer.consume(cell.queue, credit=length)
    second.send(cell.queue, *run_of(length))
    middle = length // 2
    first.accept(*first.receive(length)[:middle])
    second.drain_what_is_there()
    assert second.bodies() == []
    first.cancel()
    second.receive(length - middle)
    assert second.bodies() == run_of(length)[middle:]


@pytest.mark.parametrize("length", CUT)
@pytest.mark.parametrize("credit", ["one", "half", "twice"])
def test_credit_cuts_a_run_and_a_drain_says_when_it_is_over(
    cell: Cell, length: int, credit: str
) -> None:
    client, sent = cell.with_queue(), run_of(length)
    client.send(cell.queue, *sent)
    count = {"one": 1, "half": max(1, length // 2), "twice": 2 * length}[credit]
    client.consume(cell.queue, credit=count)
    client.receive(min(count, length))
    client.drain()
    assert client.bodies() == sent[:count]
    held = cell.place.held(cell.queue)
    assert [holder is None for holder in held] == [at >= count for at in range(length)]
    second = cell.client()
    second.consume(cell.queue, credit=length)
    second.drain()
    assert second.bodies() == sent[count:]


@pytest.mark.parametrize("length", CUT)
def test_messages_of_many_frames_in_a_run_stay_in_its_order(cell: Cell, length: int) -> None:
    """The first, one in the middle and the last do not fit a frame; a body begins with its name."""
    large = {0, length // 2, length - 1}
    sent = [body + "x" * 70_000 * (number in large) for number, body in enumerate(run_of(length))]
    client = cell.with_queue()
    assert all(client.send(cell.queue, *sent))
    client.consume(cell.queue, credit=length)
    came = client.receive(length)
    assert client.bodies() == sent
    client.accept(*came)
    cell.place.await_depth(cell.queue, 0)


@pytest.mark.parametrize("length", CUT)
def test_messages_of_several_small_frames_in_a_run_stay_in_its_order(
    cell: Cell, length: int
) -> None:
    """Of each three neighbours one fits the smallest frame, one is some more, one is many more."""
    sent = [body + "x" * (0, 700, 9_000)[at % 3] for at, body in enumerate(run_of(length))]
    client = cell.with_queue(has_small_frames=True)
    assert all(client.send(cell.queue, *sent))
    client.consume(cell.queue, credit=length)
    came = client.receive(length)
    assert client.bodies() == sent
    begin, end = length // 3, length - length // 3
    client.accept(*came[begin:end])
    cell.place.await_depth(cell.queue, length - (end - begin))
    client.accept(*came)
    cell.place.await_depth(cell.queue, 0)


@pytest.mark.parametrize("length", CUT)
def test_who_comes_back_goes_on_with_each_of_a_run_as_it_stood(cell: Cell, length: int) -> None:
    """By turns a client has no trace of a piece, accepted it unheard, has it, and settled it."""
    client, sent, size = cell.with_queue(), run_of(length), max(1, length // 8)
    client.send(cell.queue, *sent)
    client.consume(cell.queue, credit=length, kept=True)
    came = client.receive(length)
    _no_trace, accepted, undecided, settled = (
        [delivery for at, delivery in enumerate(came) if at // size % 4 == kind]
        for kind in range(4)
    )
    client.accept(*settled)
    cell.place.await_depth(cell.queue, length - len(settled))
    client.come_back(undecided=undecided, accepted=accepted)
    left = [body for at, body in enumerate(sent) if at // size % 4 in {0, 2}]
    again = client.receive(len(left))
    cell.place.await_depth(cell.queue, len(left))
    assert None not in cell.place.held(cell.queue)
    client.accept(*again)
    cell.place.await_depth(cell.queue, 0)
    client.drain_what_is_there()
    assert sorted(client.bodies()) == left


# -- what a queue asks of its messages ----------------------------------------------------------


def test_what_is_too_old_is_not_delivered_and_goes_to_the_dead_letters(cell: Cell) -> None:
    client = cell.with_queue(message_ttl_ms=0, dead_letter_queue=cell.dead)
    before = cell.counts("dead_lettered", "died_expired", "delivered")
    assert client.send(cell.queue, "a", "b") == [True, True]
    client.consume(cell.queue)
    cell.place.await_depth(cell.dead, 2)
    client.drain()
    assert client.bodies() == []
    assert cell.place.held(cell.dead) == [None, None]
    cell.await_counts(before, dead_lettered=2, died_expired=2, delivered=0)


def test_what_expires_on_its_way_round_dead_letter_queues_ends(cell: Cell) -> None:
    """Two queues that are the dead-letter queues of each other, with nobody who takes a message."""
    client, second = cell.client(), cell.client()
    cell.place.create(cell.dead, message_ttl_ms=0, dead_letter_queue=cell.queue)
    client.declare(cell.queue, message_ttl_ms=0, dead_letter_queue=cell.dead)
    before = cell.counts("died_expired", "died_cycle", "dead_lettered", "delivered")
    assert client.send(cell.queue, "a", "b") == [True, True]
    for each, queue in ((client, cell.queue), (second, cell.dead)):
        each.consume(queue)
    cell.await_counts(before, died_expired=2, died_cycle=2, dead_lettered=4, delivered=0)
    assert cell.place.entries(cell.queue) == cell.place.entries(cell.dead) == {}


@pytest.mark.parametrize("outcome", ["rejected", "over-delivered"])
def test_what_a_consumer_fails_on_goes_round_as_often_as_it_does(cell: Cell, outcome: str) -> None:
    """A queue for retries sends back what expires; annotations tell its first death, too."""
    client, second = cell.client(), cell.client()
    cell.place.create(cell.dead, message_ttl_ms=0, dead_letter_queue=cell.queue)
    client.declare(cell.queue, max_delivery_count=0, dead_letter_queue=cell.dead)
    before = cell.counts("died_cycle")
    client.send(cell.queue, "a")
    client.consume(cell.queue)
    second.consume(cell.dead)
    for round_number in range(1, 4):
        delivery = client.receive(round_number)[-1]
        assert delivery.body == "a"
        if round_number > 1:
            (entry,) = cell.place.entries(cell.queue).values()
            told = {key: text for key, (_kind, text) in annotations_of(entry.detail).items()}
            assert told.items() >= {
                ("x-opt-death-reason", "expired"),
                ("x-opt-death-queue", cell.dead),
                ("x-opt-death-first-reason", outcome),
                ("x-opt-death-first-queue", cell.queue),
            }
            assert "x-opt-death-path" not in told
        if outcome == "rejected":
            client.reject(delivery)
        else:
            client.release(delivery, failed=True)
    client.receive(4)
    cell.await_counts(before, died_cycle=0)


def test_what_is_too_old_when_it_would_be_sent_is_counted(cell: Cell) -> None:
    """A timer may be faster: then there is another."""
    client = cell.with_queue(message_ttl_ms=0)
    client.consume(cell.queue)
    (before,) = cell.counts("expired")

    def is_counted() -> bool:
        client.send(cell.queue, "late")
        return cell.counts("expired") > [before]

    cell.place.until(is_counted, "an expired message was counted")
    assert client.bodies() == []


def test_what_is_too_old_is_not_delivered_to_a_consumer_that_settles_at_once(cell: Cell) -> None:
    client = cell.with_queue(message_ttl_ms=0, dead_letter_queue=cell.dead)
    assert client.send(cell.queue, "a") == [True]
    client.consume(cell.queue, settled=True)
    cell.place.await_depth(cell.dead, 1)
    client.drain()
    assert client.bodies() == []


def test_what_is_not_delivered_costs_no_credit(cell: Cell) -> None:
    client = cell.with_queue(dead_letter_queue=cell.dead)
    client.send(cell.queue, "late", "late too", ttl_ms=1)
    client.send(cell.queue, "in time")
    cell.place.await_expiry(cell.queue)
    client.consume(cell.queue, credit=1)
    client.receive(1)
    assert client.bodies() == ["in time"]
    cell.place.await_depth(cell.dead, 2)


def test_a_message_that_says_how_long_it_lives_is_not_delivered_after_that(cell: Cell) -> None:
    client = cell.with_queue(dead_letter_queue=cell.dead)
    assert client.send(cell.queue, "late", ttl_ms=1) == [True]
    assert client.send(cell.queue, "in time", ttl_ms=3_600_000) == [True]
    cell.place.await_expiry(cell.queue)
    client.consume(cell.queue)
    cell.place.await_depth(cell.dead, 1)
    client.drain()
    assert client.bodies() == ["in time"]


def test_what_failed_too_often_goes_to_the_dead_letters(cell: Cell) -> None:
    client = cell.with_queue(max_delivery_count=1, dead_letter_queue=cell.dead)
    before = cell.counts("died_over_delivered")
    client.send(cell.queue, "poison")
    client.consume(cell.queue)
    (first,) = client.receive(1)
    client.release(first, failed=True)
    _, second = client.receive(2)
    assert [first.is_redelivered, second.is_redelivered] == [False, True]
    client.release(second, failed=True)
    cell.place.await_depth(cell.dead, 1)
    client.drain()
    assert len(client.got()) == 2
    cell.await_counts(before, died_over_delivered=1)


def test_what_was_only_given_back_may_come_any_number_of_times(cell: Cell) -> None:
    client = cell.with_queue(max_delivery_count=0, dead_letter_queue=cell.dead)
    client.send(cell.queue, "welcome")
    client.consume(cell.queue)
    for time in range(1, 4):
        delivery = client.receive(time)[-1]
        assert not delivery.is_redelivered
        client.release(delivery)
    client.receive(4)
    assert not cell.place.entries(cell.dead)


@pytest.mark.parametrize("on_reject", [None, "dead_letter", "drop"])
def test_what_is_rejected_goes_to_the_dead_letters_unless_it_is_dropped(
    cell: Cell, on_reject: str | None
) -> None:
    said = {} if on_reject is None else {"on_reject": on_reject}
    client = cell.with_queue(dead_letter_queue=cell.dead, **said)
    before = cell.counts("rejected", "died_rejected")
    client.send(cell.queue, *map(str, range(7)))
    client.consume(cell.queue)
    client.reject(*client.receive(7)[:6])
    cell.place.await_depth(cell.queue, 1)
    cell.place.await_depth(cell.dead, 6 * (on_reject != "drop"))
    cell.await_counts(before, rejected=6, died_rejected=6)


def test_what_is_rejected_goes_where_the_alternate_exchange_routes_it(cell: Cell) -> None:
    cell.place.create(cell.other)
    cell.place.bind("amq.fanout", cell.other)
    client = cell.with_queue(alternate_exchange="amq.fanout")
    client.send(cell.queue, "a")
    client.consume(cell.queue)
    client.reject(*client.receive(1))
    cell.place.await_depth(cell.other, 1)
    cell.place.await_depth(cell.queue, 0)


def test_of_one_key_only_the_newest_message_stays(cell: Cell) -> None:
    client = cell.with_queue(last_value_key="key")
    for body, key in (("old", "k"), ("other", "l"), ("new", "k")):
        assert client.send(cell.queue, body, properties={"key": key}) == [True]
    cell.place.await_depth(cell.queue, 2)
    client.consume(cell.queue)
    client.drain()
    assert client.bodies() == ["other", "new"]


def test_a_queue_of_that_kind_goes_with_its_last_consumer(cell: Cell) -> None:
    client = cell.with_queue(auto_delete=True)
    client.consume(cell.queue)
    client.cancel()
    cell.place.until(lambda: not cell.place.has(cell.queue), "the queue is gone")


def test_an_exclusive_queue_has_one_consumer_at_a_time(cell: Cell) -> None:
    client = cell.with_queue(exclusive=True)
    client.send(cell.queue, "a")
    client.consume(cell.queue)
    client.receive(1)
    second = cell.client()
    second.consume(cell.queue)
    cell.place.until(lambda: second.is_turned_away, "the second consumer is turned away")
    assert not client.is_turned_away


@pytest.mark.parametrize("selector", [None, "JMSPriority > 0"])
def test_of_several_consumers_one_is_active_and_the_next_takes_over(
    cell: Cell, selector: str | None
) -> None:
    first = cell.with_queue(single_active_consumer=True)
    second, third = cell.client(), cell.client()
    first.consume(cell.queue, credit=2)
    second.consume(cell.queue, selector=selector)
    third.consume(cell.queue)
    third.send(cell.queue, "a", "b", "c")
    first.accept(first.receive(2)[0])
    for idle in (second, third):
        idle.drain_what_is_there()
        assert idle.bodies() == []
    first.cancel()
    assert [each.body for each in second.receive(2)] == ["b", "c"]
    third.drain_what_is_there()
    assert third.bodies() == []
    second.lose()
    assert [each.body for each in third.receive(2)] == ["b", "c"]


def test_messages_of_one_group_go_to_one_consumer(cell: Cell) -> None:
    first = cell.with_queue(message_groups=True)
    second = cell.client()
    for each in (first, second):
        each.consume(cell.queue)
    for number in range(6):
        first.send(cell.queue, f"{'ab'[number % 2]}{number}", group="ab"[number % 2])
    cell.place.until(lambda: len(first.got()) + len(second.got()) == 6, "six messages")
    groups = [{body[0] for body in each.bodies()} for each in (first, second)]
    assert not groups[0] & groups[1]


@pytest.mark.parametrize("limit", [{"max_depth": 2}, {"max_bytes": 1000}])
def test_a_full_queue_refuses_what_is_sent_until_a_message_has_left(
    cell: Cell, limit: dict[str, int]
) -> None:
    client = cell.with_queue(**limit, when_full="reject")
    before = cell.counts("refused", "enqueued")
    told = [client.send(cell.queue, "x" * 400) for _ in range(2)]
    assert told == [[True], [True]]
    assert client.send(cell.queue, "x" * 400) == [False]
    assert len(cell.place.entries(cell.queue)) == 2
    cell.await_counts(before, refused=1, enqueued=2)
    reader = cell.client()
    reader.consume(cell.queue, credit=1)
    (first,) = reader.receive(1)
    reader.accept(first)
    cell.place.await_depth(cell.queue, 1)
    cell.place.pass_s(cell.place.settings.probe_interval_s)
    assert cell.client().send(cell.queue, "x" * 400) == [True]


def test_a_full_queue_refuses_what_a_transaction_sends_as_a_whole(cell: Cell) -> None:
    client = cell.with_queue(max_depth=2)
    client.begin()
    client.send(cell.queue, "1", "2", "3")
    assert not client.commit()
    assert len(cell.place.entries(cell.queue)) == 0
    other = cell.client()
    other.begin()
    other.send(cell.queue, "1", "2")
    assert other.commit()
    assert len(cell.place.entries(cell.queue)) == 2


def test_a_limit_that_is_added_in_one_place_holds_for_clients(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every call of a store: tests/contract/test_queue_limits.py."""

    def toy(_arguments: QueueArguments, depth: int, _byte_count: int) -> str | None:
        return "no more than two" if depth > 2 else None

    client = cell.client()
    monkeypatch.setattr(QueueArguments, "asks_of_arrivals", True)
    monkeypatch.setattr(QueueArguments, "why_full", toy)
    late = cell.client()
    late.declare(cell.other)
    assert [late.send(cell.other, each) for each in "123"] == [[True], [True], [False]]
    client.begin()
    client.send(cell.other, "4")
    assert not client.commit()
    assert len(cell.place.entries(cell.other)) == 2


def test_dead_letters_come_to_a_full_queue(cell: Cell) -> None:
    client = cell.client()
    cell.place.create(cell.dead, max_depth=1)
    client.declare(cell.queue, dead_letter_queue=cell.dead)
    assert client.send(cell.queue, "a", "b") == [True, True]
    client.consume(cell.queue)
    for each in client.receive(2):
        client.reject(each)
    cell.place.await_depth(cell.dead, 2)
    assert client.send(cell.dead, "c") == [False]


def test_a_full_queue_drops_its_oldest_messages_where_that_is_asked(cell: Cell) -> None:
    client = cell.with_queue(max_depth=2, when_full="drop_head")
    assert client.send(cell.queue, "1", "2", "3") == [True] * 3
    assert client.send(cell.queue, "4") == [True]
    client.begin()
    client.send(cell.queue, "5")
    assert client.commit()
    cell.place.await_depth(cell.queue, 2)
    queue = cell.place.broker.queues[cell.queue]
    cell.place.until(lambda: len(queue) <= 2, "the broker has let go of what was dropped")
    reader = cell.client()
    reader.consume(cell.queue)
    assert [each.body for each in reader.receive(2)] == ["4", "5"]


def test_a_full_queue_sends_what_comes_to_its_dead_letters_where_that_is_asked(cell: Cell) -> None:
    client = cell.with_queue(max_depth=2, when_full="dead_letter", dead_letter_queue=cell.dead)
    mourner = cell.client()
    mourner.consume(cell.dead)
    assert client.send(cell.queue, "1", "2", "3") == [True] * 3
    assert client.send(cell.queue, "4") == [True]
    client.begin()
    client.send(cell.queue, "5")
    assert client.commit()
    assert [each.body for each in mourner.receive(3)] == ["3", "4", "5"]
    mourner.accept(*mourner.got())
    cell.place.await_depth(cell.dead, 0)
    queue = cell.place.broker.queues[cell.queue]
    cell.place.until(lambda: len(queue) <= 2, "the broker has let go of what went on")
    reader = cell.client()
    reader.consume(cell.queue)
    assert [each.body for each in reader.receive(2)] == ["1", "2"]
    reader.accept(*reader.got())
    cell.place.await_depth(cell.queue, 0)
    assert cell.client().send(cell.queue, "6") == [True]
    assert reader.receive(3)[2].body == "6"


def test_of_a_full_queue_the_oldest_goes_whatever_its_priority(cell: Cell) -> None:
    client = cell.with_queue(max_depth=2, when_full="drop_head")
    for body, priority in (("urgent", 9), ("low", 0), ("middle", 4)):
        assert client.send(cell.queue, body, priority=priority) == [True]
    cell.place.await_depth(cell.queue, 2)
    reader = cell.client()
    reader.consume(cell.queue)
    assert [each.body for each in reader.receive(2)] == ["middle", "low"]


def test_a_full_queue_takes_a_newer_value_of_a_key_that_it_has(cell: Cell) -> None:
    client = cell.with_queue(last_value_key="key", max_depth=1)
    assert client.send(cell.queue, "old", properties={"key": "k"}) == [True]
    cell.place.await_depth(cell.queue, 1)
    newer = client.send(cell.queue, "newer", "newest", properties={"key": "k"})
    assert newer == [True, True]
    assert cell.client().send(cell.queue, "other", properties={"key": "l"}) == [False]
    reader = cell.client()
    reader.consume(cell.queue)
    assert [each.body for each in reader.receive(1)] == ["newest"]
    held = cell.client()
    assert held.send(cell.queue, "newest of all", properties={"key": "k"}) == [False]


def test_a_transaction_puts_a_newer_value_on_a_full_queue(cell: Cell) -> None:
    client = cell.with_queue(last_value_key="key", max_depth=1)
    assert client.send(cell.queue, "old", properties={"key": "k"}) == [True]
    cell.place.await_depth(cell.queue, 1)
    client.begin()
    client.send(cell.queue, "new", properties={"key": "k"})
    assert client.commit()
    reader = cell.client()
    reader.consume(cell.queue)
    assert [each.body for each in reader.receive(1)] == ["new"]


def test_a_transaction_may_put_on_a_full_queue_as_many_as_it_accepts(cell: Cell) -> None:
    client = cell.with_queue(max_depth=1)
    client.send(cell.queue, "old")
    client.consume(cell.queue)
    (old,) = client.receive(1)
    client.begin()
    client.send(cell.queue, "new")
    client.accept(old)
    assert client.commit()
    client.receive(2)
    assert client.bodies() == ["old", "new"]


def test_a_message_that_is_to_wait_is_hidden_until_its_time(cell: Cell) -> None:
    client = cell.with_queue(dead_letter_queue=cell.dead)
    delay = {"x-opt-delivery-delay": 100}
    assert client.send(
        cell.queue, "next year", delivery={"x-opt-delivery-delay": 365 * 24 * _HOUR_MS}
    )
    assert client.send(cell.queue, "later", "later too", delivery=delay) == [True, True]
    assert client.send(cell.queue, "past", delivery={"x-opt-delivery-time": 1000}) == [True]
    assert client.send(cell.queue, "now") == [True]
    client.consume(cell.queue)
    client.receive(4)
    client.drain()
    assert client.bodies() == ["past", "now", "later", "later too"]
    assert len(cell.place.entries(cell.queue)) == 5


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_queue_hides_what_comes_for_a_while(cell: Cell, is_committed: bool) -> None:
    client = cell.with_queue(delivery_delay_ms=_HOUR_MS)
    if is_committed:
        client.begin()
    client.send(cell.queue, "a", "b", delivery={"x-opt-delivery-delay": 1})
    if is_committed:
        assert client.commit()
    cell.place.await_depth(cell.queue, 2)
    reader = cell.client()
    reader.consume(cell.queue)
    reader.drain()
    assert reader.bodies() == []
    cell.place.destroy(cell.queue)


def test_what_is_hidden_is_so_after_a_restart_and_can_be_deleted(cell: Cell) -> None:
    client = cell.with_queue()
    client.send(cell.queue, "a", delivery={"x-opt-delivery-delay": _HOUR_MS})
    client.send(cell.queue, "b", delivery={"x-opt-delivery-delay": 200})
    cell.place.crash()
    reader = cell.client()
    reader.consume(cell.queue)
    reader.receive(1)
    reader.drain()
    assert reader.bodies() == ["b"]
    reader.cancel()
    cell.place.destroy(cell.queue)


def test_what_waited_for_its_time_has_its_place_by_that_after_a_restart(cell: Cell) -> None:
    """As before it: behind what came until then, and before what came later."""
    client, now_ms = cell.with_queue(), time_ns() // 1_000_000
    client.send(cell.queue, "late", delivery={"x-opt-delivery-time": now_ms + 500})
    client.send(cell.queue, "soon", delivery={"x-opt-delivery-time": now_ms + 450})
    client.send(cell.queue, "now")
    client.consume(cell.queue)
    client.receive(3)
    assert client.bodies() == ["now", "soon", "late"]
    cell.client().send(cell.queue, "after")
    cell.place.await_depth(cell.queue, 4)
    cell.place.crash()
    reader = cell.client()
    reader.consume(cell.queue)
    reader.receive(4)
    assert reader.bodies() == ["now", "soon", "late", "after"]


@pytest.mark.parametrize("name", ["x-opt-delivery-delay", "x-opt-delivery-time"])
def test_a_time_of_delivery_that_is_none_is_refused(cell: Cell, name: str) -> None:
    client = cell.with_queue()
    for value in (-1, "soon", True, 1 << 62, 1.5):
        assert cell.client().send(cell.queue, "a", delivery={name: value}) == [False], value
    client.begin()
    client.send(cell.queue, "a", delivery={name: -1})
    assert not client.commit()
    assert not cell.place.entries(cell.queue)


def test_what_failed_is_hidden_for_a_while_before_it_comes_again(cell: Cell) -> None:
    client = cell.with_queue(retry_delay_ms=1, retry_delay_multiplier=2, max_retry_delay_ms=50)
    client.send(cell.queue, "a")
    client.consume(cell.queue)
    for time in range(1, 5):
        (*_, delivery) = client.receive(time)
        client.release(delivery, failed=True)
    assert client.receive(5)[-1].is_redelivered


def test_only_what_failed_is_hidden_for_the_delay_of_a_retry(cell: Cell) -> None:
    client = cell.with_queue(retry_delay_ms=_HOUR_MS)
    client.send(cell.queue, "a")
    client.consume(cell.queue)
    (first,) = client.receive(1)
    client.release(first)
    _, second = client.receive(2)
    client.release(second, failed=True)
    cell.place.until(lambda: cell.place.held(cell.queue) == [None], "it waits again")
    client.drain()
    assert len(client.got()) == 2


def test_a_lost_connection_hides_what_it_had_for_the_delay_of_a_retry(cell: Cell) -> None:
    client = cell.with_queue(retry_delay_ms=_HOUR_MS)
    client.send(cell.queue, "a")
    loser = cell.client()
    loser.consume(cell.queue)
    loser.receive(1)
    loser.lose()
    cell.place.until(lambda: cell.place.held(cell.queue) == [None], "it waits again")
    client.consume(cell.queue)
    client.drain()
    assert client.bodies() == []


def test_a_consumer_that_does_not_settle_in_time_loses_the_message(cell: Cell) -> None:
    slow = cell.with_queue(lock_timeout_ms=_HOUR_MS)
    slow.send(cell.queue, "a", "b")
    slow.consume(cell.queue, credit=2)
    in_time, late = slow.receive(2)
    slow.accept(in_time)
    cell.place.pass_s(3_599)
    other = cell.client()
    other.consume(cell.queue, credit=1)
    cell.place.await_depth(cell.queue, 1)
    assert other.bodies() == []
    cell.place.pass_s(2)
    (again,) = other.receive(1)
    assert (again.body, again.is_redelivered) == ("b", True)
    slow.accept(late)
    cell.place.run()
    assert len(cell.place.entries(cell.queue)) == 1
    other.accept(again)
    cell.place.await_depth(cell.queue, 0)


def test_a_consumer_that_renews_in_time_keeps_the_message(cell: Cell) -> None:
    client = cell.with_queue(lock_timeout_ms=_HOUR_MS)
    client.send(cell.queue, "a")
    client.consume(cell.queue, credit=1)
    (one,) = client.receive(1)
    (holder,) = cell.place.held(cell.queue)
    for _ in range(3):
        cell.place.pass_s(1_800)
        is_renewed = client.renew(one)
        cell.place.run()
    if is_renewed:
        assert cell.place.held(cell.queue) == [holder]
        cell.place.pass_s(3_599)
        client.accept(one)
        cell.place.await_depth(cell.queue, 0)
    else:
        cell.place.until(lambda: cell.place.held(cell.queue) == [None], "it was taken back")


def test_what_a_transaction_has_is_not_taken_back_before_it_is_over(cell: Cell) -> None:
    slow = cell.with_queue(lock_timeout_ms=_HOUR_MS)
    slow.send(cell.queue, "a")
    slow.consume(cell.queue, credit=1)
    slow.receive(1)
    slow.begin()
    slow.accept(*slow.got())
    cell.place.pass_s(7_200)
    (holder,) = cell.place.held(cell.queue)
    assert holder is not None
    slow.rollback()  # of AMQP 1.0, where the client has settled it, that gives it back
    cell.place.pass_s(3_601)
    cell.place.until(lambda: cell.place.held(cell.queue) == [None], "it was taken back")


def test_what_came_of_late_is_taken_again_and_is_there_once(cell: Cell) -> None:
    """Also if the first one was consumed, and whatever the type of the id."""
    client = cell.with_queue(duplicate_window_ms=_HOUR_MS, max_depth=4)
    for body, message_id in (("a", "5"), ("b", "5"), ("c", 5), ("d", 5), ("e", "6")):
        assert client.send(cell.queue, body, message_id=message_id) == [True]
    assert client.send(cell.queue, "no id") == [True]
    cell.place.await_depth(cell.queue, 4)
    assert cell.client().send(cell.queue, "there is no room", message_id="7") == [False]
    assert cell.client().send(cell.queue, "f", message_id="6") == [True]
    client.consume(cell.queue, credit=4)
    client.accept(*client.receive(4))
    assert client.bodies() == ["a", "c", "e", "no id"]
    cell.place.await_depth(cell.queue, 0)
    late = cell.client()
    cell.place.pass_s(cell.place.settings.probe_interval_s)
    for message_id in ("5", 5, "6"):
        assert late.send(cell.queue, "again", message_id=message_id) == [True]
    assert late.send(cell.queue, "now there is", message_id="7") == [True]
    cell.place.await_depth(cell.queue, 1)
    queue = cell.place.broker.queues[cell.queue]
    cell.place.until(lambda: len(queue) <= 1, "the broker has let go of what was dropped")


def test_a_duplicate_within_a_transaction_is_dropped_where_it_is_one(cell: Cell) -> None:
    cell.place.create(cell.other)
    for name in (cell.queue, cell.other):
        if name == cell.queue:
            client = cell.with_queue(duplicate_window_ms=_HOUR_MS)
        cell.place.bind("amq.fanout", name)
    assert client.send("amq.fanout/", "first", message_id="x") == [True]
    client.begin()
    client.send("amq.fanout/", "second", "third", message_id="x")
    assert client.commit()
    cell.place.await_depth(cell.other, 3)
    assert len(cell.place.entries(cell.queue)) == 1
    client.consume(cell.other)
    assert [each.body for each in client.receive(3)] == ["first", "second", "third"]
    client.begin()
    client.send("amq.fanout/", "undone", message_id="y")
    client.rollback()
    assert cell.client().send("amq.fanout/", "done", message_id="y") == [True]
    cell.place.await_depth(cell.queue, 2)


def test_a_policy_holds_for_queues_that_fit_and_that_say_nothing_themselves(cell: Cell) -> None:
    client, free = cell.with_queue(), cell.client()
    free.declare(cell.other, max_depth=3)
    cell.place.set_policy(f"of {cell.queue}", cell.queue, max_depth=1)
    cell.place.set_policy(f"of {cell.other}", cell.other, max_depth=1, max_delivery_count=0)
    cell.place.until(
        lambda: cell.place.broker.queues[cell.other].arguments.max_delivery_count == 0,
        "the broker has heard of the policy",
    )
    assert client.send(cell.queue, "1") == [True]
    assert cell.client().send(cell.queue, "2") == [False]
    assert free.send(cell.other, "1", "2") == [True, True]
    free.consume(cell.other, credit=1)
    free.release(*free.receive(1), failed=True)
    cell.place.await_depth(cell.other, 1)
    cell.place.set_policy(f"of {cell.queue}", "")
    cell.place.set_policy(f"of {cell.other}", "")
    assert cell.client().send(cell.queue, "2") == [True]


ARGUMENTS = {
    "duplicate_window_ms": test_what_came_of_late_is_taken_again_and_is_there_once,
    "lock_timeout_ms": test_a_consumer_that_does_not_settle_in_time_loses_the_message,
    "delivery_delay_ms": test_a_queue_hides_what_comes_for_a_while,
    "retry_delay_ms": test_only_what_failed_is_hidden_for_the_delay_of_a_retry,
    "retry_delay_multiplier": test_what_failed_is_hidden_for_a_while_before_it_comes_again,
    "max_retry_delay_ms": test_what_failed_is_hidden_for_a_while_before_it_comes_again,
    "max_depth": test_a_full_queue_refuses_what_is_sent_until_a_message_has_left,
    "max_bytes": test_a_full_queue_refuses_what_is_sent_until_a_message_has_left,
    "when_full": test_a_full_queue_refuses_what_is_sent_until_a_message_has_left,
    "message_ttl_ms": test_what_is_too_old_is_not_delivered_and_goes_to_the_dead_letters,
    "max_delivery_count": test_what_failed_too_often_goes_to_the_dead_letters,
    "dead_letter_queue": test_what_is_rejected_goes_to_the_dead_letters_unless_it_is_dropped,
    "last_value_key": test_of_one_key_only_the_newest_message_stays,
    "exclusive": test_an_exclusive_queue_has_one_consumer_at_a_time,
    "single_active_consumer": test_of_several_consumers_one_is_active_and_the_next_takes_over,
    "message_groups": test_messages_of_one_group_go_to_one_consumer,
    "on_reject": test_what_is_rejected_goes_to_the_dead_letters_unless_it_is_dropped,
    "alternate_exchange": test_what_is_rejected_goes_where_the_alternate_exchange_routes_it,
    "auto_delete": test_a_queue_of_that_kind_goes_with_its_last_consumer,
}


def test_each_argument_of_a_queue_has_a_rule_here() -> None:
    assert {*ARGUMENTS} == {*QueueArguments._fields}


# -- which messages, and in which order ---------------------------------------------------------


def test_higher_priority_comes_first_then_what_came_first(cell: Cell) -> None:
    client = cell.with_queue()
    for body, priority in (("low", 1), ("high", 8), ("low too", 1)):
        client.send(cell.queue, body, priority=priority)
    client.consume(cell.queue)
    client.receive(3)
    assert client.bodies() == ["high", "low", "low too"]


def test_a_selector_takes_what_it_selects_and_leaves_the_rest(cell: Cell) -> None:
    client = cell.with_queue()
    for body, colour in (("1", "red"), ("2", "blue"), ("3", "red")):
        client.send(cell.queue, body, properties={"colour": colour})
    client.consume(cell.queue, selector="colour = 'red'")
    client.drain()
    assert client.bodies() == ["1", "3"]
    assert cell.place.held(cell.queue)[1] is None


def test_who_browses_sees_all_that_waits_and_takes_nothing(cell: Cell) -> None:
    client = cell.with_queue()
    client.send(cell.queue, "1", "2")
    before, counted = cell.place.position, cell.counts("delivered")
    client.consume(cell.queue, browse=True)
    client.receive(2)
    assert client.bodies() == ["1", "2"]
    assert cell.place.held(cell.queue) == [None, None]
    assert cell.place.position == before
    cell.await_counts(counted, delivered=2)


def test_who_browses_by_a_selector_is_shown_what_could_not_be_read_at_first(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = cell.with_queue()
    for body, colour in (("1", "red"), ("2", "blue"), ("3", "red")):
        client.send(cell.queue, body, properties={"colour": colour})
    read, errors = cell.place.calls.read_headers, [Unavailable("no answer"), Full("no room")]

    def refused_at_first(message_ids: Sequence[int], on_read: OnRead) -> None:
        if errors:
            on_read(errors.pop(), ())
        else:
            read(message_ids, on_read)

    monkeypatch.setattr(cell.place.calls, "read_headers", refused_at_first)
    client.consume(cell.queue, selector="colour = 'red'", browse=True)
    client.receive(2)
    assert client.bodies() == ["1", "3"]
    assert errors == []


def test_who_browses_is_not_shown_what_is_too_old(cell: Cell) -> None:
    client = cell.with_queue()
    client.send(cell.queue, "late", ttl_ms=1)
    client.send(cell.queue, "in time")
    cell.place.await_expiry(cell.queue)
    client.consume(cell.queue, credit=1, browse=True)
    client.receive(1)
    assert client.bodies() == ["in time"]


def test_what_is_given_back_is_where_it_was(cell: Cell) -> None:
    client = cell.with_queue()
    client.send(cell.queue, "1", "2", "3")
    client.consume(cell.queue, 2)
    client.receive(2)
    client.cancel()
    cell.place.until(lambda: not any(cell.place.held(cell.queue)), "all of it waits")
    second = cell.client()
    second.consume(cell.queue)
    second.receive(3)
    assert second.bodies() == ["1", "2", "3"]


# -- what goes wrong ----------------------------------------------------------------------------


def test_what_cannot_be_read_is_left_held_once_and_logged(
    cell: Cell, caplog: pytest.LogCaptureFixture
) -> None:
    client = cell.with_queue()
    client.send(cell.queue, "damaged", "whole")
    damaged, _whole = cell.place.entries(cell.queue)
    cell.place.damage(damaged)
    with caplog.at_level(logging.ERROR):
        client.consume(cell.queue)
        client.receive(1)
        assert client.bodies() == ["whole"]
        cell.place.until(lambda: "it is left held" in caplog.text, "a line in the log")
    before = cell.place.position
    for _ in range(PROBES):
        cell.place.pass_s(cell.place.settings.probe_interval_s)
    assert cell.place.position == before, "nothing more was asked of the store"
    assert cell.place.held(cell.queue)[0] is not None
    assert caplog.text.count("it is left held") == 1


@pytest.mark.parametrize("settled", [False, True])
def test_what_another_has_a_claim_on_comes_once_that_is_given_up(cell: Cell, settled: bool) -> None:
    """The store refuses to have it acquired, and later would not."""
    client = cell.with_queue()
    client.send(cell.queue, "claimed")
    with cell.place.claimed(cell.queue):
        client.consume(cell.queue, settled=settled)
        client.drain_what_is_there()
        assert client.bodies() == []
    client.receive(1)
    assert client.bodies() == ["claimed"]


def test_what_a_consumer_had_when_it_was_lost_comes_to_another_as_a_failed_delivery(
    cell: Cell,
) -> None:
    client = cell.with_queue()
    client.send(cell.queue, "1")
    client.consume(cell.queue)
    client.receive(1)
    client.lose()
    second = cell.client()
    second.consume(cell.queue)
    (again,) = second.receive(1)
    assert (again.body, again.is_redelivered) == ("1", True)


@pytest.mark.parametrize("length", CUT)
def test_what_was_held_of_a_run_when_the_broker_was_killed_comes_again_as_a_failed_delivery(
    cell: Cell, length: int
) -> None:
    """The middle third is held, the others are accepted, and as many more wait."""
    client, sent = cell.with_queue(), [*run_of(length), *run_of(length, "new")]
    client.send(cell.queue, *sent)
    client.consume(cell.queue, credit=length)
    begin, end = length // 3, length - length // 3
    came = client.receive(length)
    client.accept(*came[:begin], *came[end:])
    cell.place.await_depth(cell.queue, length + end - begin)
    cell.place.crash()
    second = cell.client()
    second.consume(cell.queue, credit=2 * length)
    again = second.receive(length + end - begin)
    assert [delivery.body for delivery in again] == [*sent[begin:end], *sent[length:]]
    assert [delivery.is_redelivered for delivery in again] == [
        *[True] * (end - begin),
        *[False] * length,
    ]


# -- transactions -------------------------------------------------------------------------------


def test_what_is_sent_and_accepted_in_a_transaction_happens_with_its_commit(cell: Cell) -> None:
    client = cell.with_queue()
    cell.place.create(cell.other)
    client.send(cell.queue, "in")
    client.consume(cell.queue)
    (taken,) = client.receive(1)
    client.begin()
    client.send(cell.other, "out")
    client.accept(taken)
    assert [len(cell.place.entries(each)) for each in (cell.queue, cell.other)] == [1, 0]
    assert client.commit()
    cell.place.await_depth(cell.queue, 0)
    cell.place.await_depth(cell.other, 1)


def test_what_is_rolled_back_was_not_sent_and_comes_again(cell: Cell) -> None:
    client = cell.with_queue()
    cell.place.create(cell.other)
    client.send(cell.queue, "in")
    client.consume(cell.queue)
    (taken,) = client.receive(1)
    client.begin()
    client.send(cell.other, "out")
    client.accept(taken)
    client.rollback()
    client.cancel()
    second = cell.client()
    second.consume(cell.queue)
    second.receive(1)
    assert second.bodies() == ["in"]
    assert not cell.place.entries(cell.other)


@pytest.mark.parametrize("is_prepared", [True, False])
@pytest.mark.parametrize("commits", [True, False])
def test_a_branch_ends_as_a_transaction_of_that_end(
    home: Home, is_prepared: bool, commits: bool
) -> None:
    outcomes = []
    for is_branch in (False, True):
        cell = Cell(home, Driver010, BrokerSettings())
        client = cell.client()
        assert isinstance(client, Driver010)
        for name in (cell.queue, cell.other):
            cell.place.create(name)
        before = cell.counts("transactions_committed", "transactions_rolled_back")
        client.send(cell.queue, "in")
        client.consume(cell.queue)
        (taken,) = client.receive(1)
        name = cell.queue.encode()
        client.begin_branch(name) if is_branch else client.begin()
        client.send(cell.other, "out")
        client.accept(taken)
        if is_branch:
            client.end_branch(name, is_prepared=is_prepared, commits=commits)
        else:
            assert client.commit() if commits else client.rollback() is None
        is_local = not is_branch  # these counters are of local transactions
        cell.await_counts(
            before,
            transactions_committed=is_local and commits,
            transactions_rolled_back=is_local and not commits,
        )
        cell.place.await_depth(cell.queue, int(not commits))
        cell.place.await_depth(cell.other, int(commits))
        client.cancel()
        second = cell.client()
        second.consume(cell.queue)
        if not commits:
            second.receive(1)
        outcomes.append([(each.body, each.is_redelivered) for each in second.got()])
    # The session keeps what it accepted in a transaction, and gives it back as not failed here. A
    # branch gives it back itself: a failed delivery, unless its coordinator decided that later.
    expected = [[], []] if commits else [[("in", False)], [("in", not is_prepared)]]
    assert outcomes == expected


def test_a_transaction_of_a_connection_that_is_lost_is_rolled_back(cell: Cell) -> None:
    client = cell.with_queue()
    cell.place.create(cell.other)
    client.send(cell.queue, "in")
    client.consume(cell.queue)
    (taken,) = client.receive(1)
    client.begin()
    client.send(cell.other, "out")
    client.accept(taken)
    client.lose()
    second = cell.client()
    second.consume(cell.queue)
    second.receive(1)
    assert not cell.place.entries(cell.other)


def test_what_a_transaction_sends_goes_to_those_of_its_queues_that_are_left(cell: Cell) -> None:
    client = cell.with_queue()
    cell.place.create(cell.other)
    for name in (cell.queue, cell.other):
        cell.place.bind("amq.topic", name, cell.queue)
    client.begin()
    client.send(f"amq.topic/{cell.queue}", "news")
    cell.place.destroy(cell.other)
    assert client.commit()
    cell.place.await_depth(cell.queue, 1)


def test_what_a_transaction_sends_is_undone_if_none_of_its_queues_is_left(cell: Cell) -> None:
    client = cell.with_queue()
    cell.place.create(cell.other)
    client.begin()
    client.send(cell.queue, "kept out")
    client.send(cell.other, "lost")
    cell.place.destroy(cell.other)
    assert not client.commit()
    assert not cell.place.entries(cell.queue)


def test_what_a_queue_asks_holds_for_what_a_transaction_sends(cell: Cell) -> None:
    client = cell.with_queue(last_value_key="key", message_ttl_ms=0, dead_letter_queue=cell.dead)
    client.begin()
    for body in ("old", "new"):
        client.send(cell.queue, body, properties={"key": "k"})
    assert client.commit()
    reader = cell.client()
    reader.consume(cell.queue)
    cell.place.await_depth(cell.queue, 0)
    assert reader.bodies() == []
    assert len(cell.place.entries(cell.dead)) in {1, 2}, "the older one is replaced, or too old"


# -- counters -----------------------------------------------------------------------------------


def test_what_comes_in_and_goes_out_is_counted(cell: Cell) -> None:
    client = cell.with_queue()
    counted = ("received", "enqueued", "delivered", "accepted", "released")
    before = cell.counts(*counted)
    client.send(cell.queue, "1", "2")
    client.consume(cell.queue)
    first, second = client.receive(2)
    client.accept(first)
    client.cancel()
    cell.place.until(lambda: cell.place.held(cell.queue) == [None], "one waits")
    assert second.body == "2"
    cell.await_counts(before, received=2, enqueued=2, delivered=2, accepted=1, released=1)


def test_what_is_accepted_leaves_as_that_in_a_transaction_too(cell: Cell) -> None:
    client = cell.with_queue()
    client.send(cell.queue, "1", "2", "3")
    client.consume(cell.queue)
    first, second, third = client.receive(3)
    client.accept(first)
    client.begin()
    client.accept(second, third)
    client.commit()
    cell.place.await_depth(cell.queue, 0)
    broker = cell.place.broker
    counted = {} if broker.is_member else {"accepted": 3}  # a member's service counts
    assert broker.queues[cell.queue].departed == counted


def test_each_delivery_and_each_acceptance_is_timed(cell: Cell) -> None:
    """Also what is accepted in a transaction: its time is that of the store's record."""
    client = cell.with_queue()
    delivered = cell.place.broker.metrics.delivery_duration_seconds
    settled = cell.place.store.settlement_times.taken
    before = [each.buckets[-1][1] for each in (delivered, settled)]
    client.send(cell.queue, "1", "2")
    client.consume(cell.queue)
    for message in client.receive(2):
        client.accept(message)
    cell.place.await_depth(cell.queue, 0)
    after = [each.buckets[-1][1] for each in (delivered, settled)]
    assert after == [before[0] + 2, before[1] + 2]
    assert settled.sum_s >= 0


def test_what_is_refused_is_counted(cell: Cell) -> None:
    strict = cell.anew(BrokerSettings(durable_messages=DurableMessages.REJECTED))
    client = strict.with_queue()
    before = strict.counts("received", "refused", "unroutable", "enqueued")
    assert client.send(strict.queue, "durable") == [False]
    strict.await_counts(before, received=1, refused=1, unroutable=0, enqueued=0)


def test_what_no_queue_gets_is_counted_as_that(cell: Cell) -> None:
    client = cell.client()
    before = cell.counts("received", "refused", "unroutable", "enqueued")
    assert client.send("amq.direct/nowhere", "lost") == [False]
    cell.await_counts(before, received=1, refused=0, unroutable=1, enqueued=0)


def test_transactions_are_counted_as_they_end(cell: Cell) -> None:
    client = cell.with_queue()
    names = ("transactions_committed", "transactions_rolled_back")
    before = cell.counts(*names)
    for end in (client.commit, client.rollback, client.commit):
        client.begin()
        assert client.send(cell.queue, "x") == [True]
        assert end() is not False
    client.begin()
    client.rollback()  # nothing was done in it
    client.begin()
    assert client.send(cell.queue, "x") == [True]
    client.lose()
    cell.await_counts(before, transactions_committed=2, transactions_rolled_back=2)


def test_what_is_not_durable_and_what_is_replaced_is_counted(cell: Cell) -> None:
    client = cell.with_queue(last_value_key="key")
    before = cell.counts("not_durable", "replaced")
    for body in ("old", "new"):
        client.send(cell.queue, body, properties={"key": "k"}, durable=False)
    cell.await_counts(before, not_durable=2, replaced=1)


COUNTED = {
    *(
        "received",
        "enqueued",
        "delivered",
        "delivery_duration_seconds",
        "accepted",
        "released",
        "rejected",
        "expired",
    ),
    *("refused", "unroutable", "not_durable", "replaced"),
    *("died_expired", "died_rejected", "died_over_delivered", "died_cycle"),
    *("transactions_committed", "transactions_rolled_back"),
}
_OF_NO_DELIVERY = {"connections", "protocol_errors", "moved", "refused_queues"}
"""Counted of connections, of what a peer wrote or made, and of what an administrator ordered."""


def test_each_counter_of_deliveries_has_a_rule_here() -> None:
    there = {*Metrics.__dataclass_fields__} - {*SecurityCounts.__dataclass_fields__}
    assert there - _OF_NO_DELIVERY == COUNTED
