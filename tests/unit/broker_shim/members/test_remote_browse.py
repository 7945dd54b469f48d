"""What a browser at a member looks at: in parts, each once, over lost connections, too."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.broker.queues.queue_index import Cursor
from broker_shim.broker.queues.selective_cursor import Consumer
from broker_shim.members.remote_browse import RemoteCursor
from broker_shim.members.remote_queue import RemoteQueue
from broker_shim.selectors import Selector
from broker_shim.store.interface import Entry
from sparkstore.core.queue_arguments import QueueArguments


class Service:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.queue = QueueDispatch("q")
        self.asked: list[RemoteCursor] = []

    def look(self, queue: RemoteQueue, cursor: RemoteCursor) -> None:
        assert queue.name == "q"
        self.asked.append(cursor)

    def answer(self, count: int) -> None:
        cursor = self.asked.pop(0)
        place = Cursor()
        place.indexes = [*cursor.indexes]
        ids = [message_id for _, message_id in self.queue.browse(place, count)]
        cursor.came([(each, entry(each)) for each in ids], place.indexes)
        on_known, cursor.on_known = cursor.on_known, None
        assert on_known is not None
        on_known()

    def subscribe(self, queue: RemoteQueue, consumer: Consumer, selector: Selector | None) -> None:
        raise NotImplementedError

    def cancel(self, consumer: Consumer) -> None:
        raise NotImplementedError

    def refuse(self, message_id: int, consumer: Consumer) -> None:
        raise NotImplementedError

    def ask(self, consumer: Consumer) -> None:
        raise NotImplementedError

    def has_caught_up(self, consumer: Consumer) -> bool:
        raise NotImplementedError


def entry(message_id: int) -> Entry:
    return Entry(1, 1, 4, None, 10, None, message_id % 3, None)


class Browser:
    """Looks on whenever it can."""

    def __init__(self, service: Service) -> None:
        arguments = QueueArguments()
        self.queue = RemoteQueue("q", is_kept=True, arguments=arguments, subscriber=service)
        self.cursor = self.queue.cursor()
        self.seen: list[int] = []
        self.ends = 0

    def look(self) -> None:
        while self.queue.can_look(self.cursor, self.look):
            if self.queue.has_browsed(self.cursor):
                self.ends += 1
                return
            for _place, message_id in self.queue.browse(self.cursor, 2):
                found = self.queue.entry_of_browsed(message_id)
                assert found == entry(message_id)
                assert self.queue.delivery_count(message_id) == message_id % 3
                self.seen.append(message_id)


def arrive(service: Service, message_ids: Sequence[int]) -> None:
    for message_id in message_ids:
        service.queue.arrived((message_id,), 4)


def test_a_browser_sees_all_in_order_and_is_told_of_the_end_each_time_it_asked() -> None:
    service = Service()
    browser = Browser(service)
    arrive(service, range(1, 8))
    browser.look()
    browser.look()  # it is asked for once
    while service.asked:
        service.answer(3)
    assert (browser.seen, browser.ends) == ([*range(1, 8)], 1)
    arrive(service, [8])
    browser.look()
    while service.asked:
        service.answer(3)
    assert (browser.seen, browser.ends) == ([*range(1, 9)], 2)


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_seen_twice_or_missed_whatever_connections_are_lost(seed: int) -> None:
    dice, service = random.Random(seed), Service()
    browser = Browser(service)
    for turn in range(40):
        step = dice.randrange(4)
        if step == 0:
            arrive(service, [turn])
        elif step == 1:
            browser.look()
        elif step == 2 and service.asked:
            service.answer(dice.randrange(1, 4))
        else:  # what was asked is asked again, of a service that counts otherwise
            waiting = list(service.queue.browse(Cursor(), 100))
            before, service.queue = service.queue, QueueDispatch("q")
            assert before.name == "q"
            arrive(service, [message_id for _, message_id in waiting])
            browser.cursor.begin_anew(turn)
    browser.look()
    while service.asked:
        service.answer(3)
    there = [message_id for _, message_id in service.queue.browse(Cursor(), 100)]
    assert sorted(browser.seen) == sorted(there)
