"""The virtual host by itself: listeners of any protocol can stand on it, as a small one does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pytest

from broker_shim.broker.metrics import Metrics
from broker_shim.broker.settings import BrokerSettings
from broker_shim.broker.storage.inbox import Inbox
from broker_shim.broker.storage.store_calls import StoreCalls
from broker_shim.broker.virtual_host import Broker
from broker_shim.completion import OnComplete
from broker_shim.errors import StoreError
from broker_shim.selectors import parse
from broker_shim.store.interface import MessageHeader, Queue
from broker_shim.store.memory import MemoryMessageStore
from sparkstore.core.state_machine.call_values import AcquireCall
from sparkstore.operations.administration import AdminAction, Order, OwnLink
from tests.support.readiness import is_ready

TIMEOUT_S = 20


@dataclass(frozen=True)
class Subject:
    """A header in the small listener's protocol: a subject, and nothing else."""

    subject: str | None
    steps: int = 1

    def get(self, name: str) -> str | None:
        return self.subject if name == "subject" else None


def subject_of(columns: MessageHeader) -> Subject:
    return Subject(columns.subject)


class Subscriber:
    """A consumer of the small protocol, and the owner of the queue that was made for it."""

    def __init__(self, broker: Broker, queue: str) -> None:
        self._broker, self.queue = broker, queue
        self.credit = 10
        self.held: list[int] = []
        self.told: list[str] = []

    def assign(self, message_ids: Sequence[int]) -> int:
        self.credit -= len(message_ids)
        self.held += message_ids
        return len(message_ids)

    def caught_up(self) -> None:
        """Nothing is left that it wants."""

    def turned_away(self, reason: str) -> None:
        raise AssertionError(reason)

    def queue_deleted(self) -> None:
        self.told.append("deleted")
        self._broker.queues[self.queue].discard(self)

    def own_link(self, queue: str) -> OwnLink | None:
        return OwnLink("the subscriber", is_attached=False) if queue == self.queue else None

    def end_own_link(self, queue: str, on_done: OnComplete) -> bool:
        if queue != self.queue:
            return False
        self._broker.destroy_queue(queue, on_done)
        return True

    def queue_gone(self, queue: str) -> None:
        self.told.append(f"{queue} is gone")


class SmallHost:
    """A broker over a store in memory, moved step by step."""

    def __init__(self) -> None:
        self._inbox = Inbox()
        self.calls = StoreCalls(MemoryMessageStore(), self._inbox, self._fail)
        later: Callable[[float, Callable[[], None]], None] = lambda _s, call: call()  # noqa: E731
        self.broker = Broker(self.calls, BrokerSettings(), Metrics(), later, subject_of)
        self.answers: list[StoreError | None] = []
        self.broker.create_queue(Queue("q"), self.answers.append)
        self.run()

    def _fail(self, error: StoreError) -> None:
        raise error

    def run(self) -> None:
        """Until the store has answered everything."""
        self.broker.dispatch()
        while self.calls.open_count:
            assert is_ready(self._inbox, TIMEOUT_S), "no answer of the store"
            self._inbox.drain()
            self.broker.dispatch()

    def publish(self, subject: str, *queues: str) -> None:
        header = MessageHeader("small", b"", subject=subject)
        self.broker.publish(header, b"body", queues or ("q",), self.answers.append)
        self.run()

    def close(self) -> None:
        self._inbox.close()


@pytest.fixture
def host() -> Iterator[SmallHost]:
    it = SmallHost()
    yield it
    it.close()


def test_a_consumer_of_any_protocol_is_handed_what_it_has_credit_for(host: SmallHost) -> None:
    consumer = Subscriber(host.broker, "q")
    consumer.credit = 1
    host.broker.queues["q"].add(consumer)
    host.publish("a")
    host.publish("b")
    assert len(consumer.held) == 1
    assert len(host.broker.queues["q"]) == 2


def test_a_selector_asks_the_headers_that_the_listener_knows_how_to_show(host: SmallHost) -> None:
    consumer = Subscriber(host.broker, "q")
    host.broker.queues["q"].add(consumer, parse("subject = 'wanted'"))
    host.publish("other")
    host.publish("wanted")
    (message_id,) = consumer.held
    assert host.calls.header(message_id).subject == "wanted"


def test_a_message_that_is_settled_leaves_its_queue(host: SmallHost) -> None:
    consumer = Subscriber(host.broker, "q")
    host.broker.queues["q"].add(consumer)
    host.publish("a")
    (message_id,) = consumer.held
    host.calls.make_each(AcquireCall([message_id], "q", "it"), host.answers.extend)
    host.broker.settlement.remove(
        [message_id], "q", "it", lambda _ended, outcomes: host.answers.extend(outcomes)
    )
    host.run()
    assert (len(host.broker.queues["q"]), host.answers) == (0, [None] * 4)


def test_a_link_of_a_listener_ends_with_its_queue_and_every_listener_hears_of_it(
    host: SmallHost,
) -> None:
    owner, other = Subscriber(host.broker, "q"), Subscriber(host.broker, "another")
    host.broker.queue_owners += [other, owner]
    host.broker.queues["q"].add(owner)
    told: list[StoreError | None] = []
    order = Order(AdminAction.DELETE_QUEUE, "q", force=True)
    host.broker.administration.order(order, lambda error, _answer: told.append(error))
    host.run()
    assert (told, owner.told, other.told) == ([None], ["deleted", "q is gone"], ["q is gone"])
    assert "q" not in host.broker.queues


def test_the_virtual_host_is_had_without_any_protocol() -> None:
    code = "import sys, broker_shim.broker.virtual_host; print(*sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    rooms = {".".join(each.split(".")[:2]) for each in told.stdout.split()}
    assert not rooms & {f"broker_shim.{each}" for each in ("amqp_1_0", "protocol_1_0")}
    assert "broker_shim.listener_1_0" not in rooms
