"""What a member makes while it is told what wiring there is stays at its broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from broker_shim.broker.settings import BrokerSettings
from broker_shim.errors import StoreError
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import Queue, Recovered
from tests.support.delivery.places import AtMember
from tests.support.stores.controls import ServicedRoot
from tests.support.stores.stores import DELTA_CONFIG, TIMEOUT_S, done


class LateStore(DeltaMessageStore):
    """Tells what there is as it was when it was asked, but only when the test says so."""

    asked, told = Event(), Event()

    def recover(self) -> Recovered:
        there = super().recover()
        self.asked.set()
        assert self.told.wait(TIMEOUT_S)
        return there


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServicedRoot]:
    LateStore.asked, LateStore.told = Event(), Event()
    there = ServicedRoot(tmp_path / "root", config=DELTA_CONFIG, store_of=LateStore)
    yield there
    LateStore.told.set()
    there.stop()


def test_a_queue_that_is_made_while_all_there_is_is_told_stays(service: ServicedRoot) -> None:
    place = AtMember(BrokerSettings(), service)
    answers: list[StoreError | None] = []
    assert LateStore.asked.wait(TIMEOUT_S)
    place.broker.create_queue(Queue("mine"), answers.append)
    done(service.store.flush)
    place.calls.headers([1])  # answered after what is decided
    place.inbox.drain()
    LateStore.told.set()
    place.until(lambda: answers, "the queue is created")
    assert answers == [None]
    done(service.store.create, Queue("last"))
    place.until(lambda: "last" in place.broker.queues, "all is told")
    assert "mine" in place.broker.queues
    place.close()


def test_what_waits_for_all_there_is_is_done_before_the_connection_is_closed(
    service: ServicedRoot,
) -> None:
    place = AtMember(BrokerSettings(), service)
    assert LateStore.asked.wait(TIMEOUT_S)
    place.broker.create_queue(Queue("mine"), lambda _error: None)
    place.close()
    with service.store.look() as machine:
        assert "mine" in machine.state.queues
