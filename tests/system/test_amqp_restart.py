"""What a restart and a kill -9 leave, over a Delta root: the oracle is what clients were told."""

from __future__ import annotations

import random
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from proton import Delivery, Message
from proton.handlers import MessagingHandler
from proton.reactor import Container, Selector

from tests.support.system.clients import (
    TIMEOUT_S,
    Holder,
    Pipelined,
    SecondMode,
    connected,
    is_empty,
    send,
    take,
)
from tests.support.system.old_client import OldClient
from tests.support.system.processes import BrokerProcess, StartBroker

pytestmark = [pytest.mark.system, pytest.mark.slow]


LAST = 1 << 40


def durable(number: int, body: object = b"x" * 100) -> Message:
    return Message(id=number, durable=True, body=body, inferred=True, subject=f"s.{number}")


def test_persistent_messages_survive_a_restart_and_transient_ones_do_not(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = start_broker(str(tmp_path / "root"))
    send(broker.url, "q", durable(1), Message(id=2), durable(3, "text"))
    assert broker.terminate() == 0
    again = start_broker(str(tmp_path / "root"))
    received = take(again.url, "q", 2)
    assert [(m.id, m.body, m.subject) for m in received] == [
        (1, b"x" * 100, "s.1"),
        (3, "text", "s.3"),
    ]
    assert is_empty(again.url, "q")


def test_what_came_over_0_10_keeps_its_types_at_a_broker_that_does_not_speak_it(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    properties = {"n": 1, "ratio": 0.5, "is_so": True, "text": "1"}
    broker = start_broker(str(tmp_path / "root"), "--amqp-0-10=same", "--queue=q")
    with OldClient(broker.url) as older:
        older.publish("q", b"no", application_headers={"n": 2})
        older.publish("q", b"yes", application_headers=properties)
    assert broker.terminate() == 0
    again = start_broker(str(tmp_path / "root"))
    with connected(again.url) as connection:
        receiver = connection.create_receiver("q", options=Selector("n = 1 AND is_so = TRUE"))
        message = receiver.receive(TIMEOUT_S)
        receiver.accept()
        told = dict(message.properties)
        assert told == properties
        assert [type(told[name]) for name in properties] == [int, float, bool, str]


def test_wiring_survives_a_kill(start_broker: StartBroker, tmp_path: Path) -> None:
    wiring = ["--exchange=news:topic", "--queue=sport", "--bind=news:sport.#:sport"]
    start_broker(str(tmp_path / "root"), *wiring).kill()
    broker = start_broker(str(tmp_path / "root"))
    send(broker.url, "news/sport.ski", durable(1))
    assert [m.id for m in take(broker.url, "sport", 1)] == [1]


def test_what_a_killed_broker_had_delivered_comes_again_with_its_count_raised(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = start_broker(str(tmp_path / "root"))
    send(broker.url, "q", durable(1), durable(2))
    assert Holder(broker.url, "q", 1, broker.kill).run() == [1]
    again = start_broker(str(tmp_path / "root"))
    received = take(again.url, "q", 2)
    assert [(m.id, m.delivery_count) for m in received] == [(1, 1), (2, 0)]
    assert "released 1 messages that 1 lost links held" in again.log


def test_a_large_message_survives_a_kill(start_broker: StartBroker, tmp_path: Path) -> None:
    body = random.Random(7).randbytes(10 << 20)
    broker = start_broker(str(tmp_path / "root"))
    send(broker.url, "q", durable(1, body))
    broker.kill()
    (received,) = take(start_broker(str(tmp_path / "root")).url, "q", 1)
    assert received.body == body


class Accepting(MessagingHandler):
    """Accepts everything and notes the accepts that the broker confirmed."""

    def __init__(self, url: str, address: str, at_most: int = 1 << 30) -> None:
        super().__init__(prefetch=100, auto_accept=False)
        self._url = url
        self._address = address
        self._at_most = at_most
        self.seen: list[int] = []
        self.confirmed: list[int] = []
        self.has_confirmed = threading.Event()
        self._open: dict[Delivery, int] = {}

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(self._url, reconnect=False)
        event.container.create_receiver(connection, self._address, options=SecondMode())

    def on_message(self, event: Any) -> None:
        self.seen.append(event.message.id)
        self._open[event.delivery] = event.message.id
        event.delivery.update(Delivery.ACCEPTED)

    def on_settled(self, event: Any) -> None:
        self.confirmed.append(self._open.pop(event.delivery))
        self.has_confirmed.set()
        event.delivery.settle()
        if len(self.confirmed) >= self._at_most:
            event.connection.close()

    def on_transport_error(self, event: Any) -> None:
        """The broker was killed: that is the point."""


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_kill_in_the_middle_of_load_loses_nothing_that_a_client_was_told(
    start_broker: StartBroker, tmp_path: Path, seed: int
) -> None:
    root, kill_at = str(tmp_path / "root"), random.Random(seed).randint(300, 1500)
    broker = start_broker(root, "--queue=a", "--queue=b", *_to_both())
    killed = threading.Event()

    def maybe_kill(sender: Pipelined) -> None:
        is_due = len(sender.accepted) >= kill_at and consumer.has_confirmed.is_set()
        if is_due and not killed.is_set():
            killed.set()
            broker.kill()

    consumer = Accepting(broker.url, "a")
    consuming = threading.Thread(target=Container(consumer).run)
    consuming.start()
    messages = [durable(number) for number in range(2000)]
    sender = Pipelined(broker.url, "amq.fanout", messages, maybe_kill).run()
    if not killed.is_set():  # all was sent before the first accept: kill it while it consumes
        assert consumer.has_confirmed.wait(30)
        broker.kill()
    consuming.join(30)
    assert not consuming.is_alive()

    again = start_broker(root)
    left_on_a, left_on_b = _drain(again, "a"), _drain(again, "b")
    accepted, confirmed = set(sender.accepted), set(consumer.confirmed)
    assert confirmed
    assert accepted
    assert accepted <= set(left_on_b), "an accepted send is lost on b"
    assert accepted <= set(left_on_a) | set(consumer.seen), "an accepted send is lost on a"
    assert not confirmed & set(left_on_a), "a confirmed accept came back"
    assert max(Counter(left_on_a).values(), default=1) == 1
    assert max(Counter(left_on_b).values(), default=1) == 1
    # Both queues or neither: b was not consumed, so it has whatever a ever had.
    assert set(left_on_a) | confirmed <= set(left_on_b)


def _to_both() -> list[str]:
    return ["--bind=amq.fanout::a", "--bind=amq.fanout::b"]


def _drain(broker: BrokerProcess, queue: str) -> list[int]:
    """Accept all there is; the ids in order."""
    ids: list[int] = []
    with connected(broker.url) as connection:
        receiver = connection.create_receiver(queue, credit=500)
        send(broker.url, queue, Message(id=LAST))
        while (message := receiver.receive(timeout=20)).id != LAST:
            ids.append(message.id)
            receiver.accept()
        receiver.accept()
    return ids
