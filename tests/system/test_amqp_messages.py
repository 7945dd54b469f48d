"""What a client sends, another gets; what it decides, holds."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from proton import Condition, Delivery, Message, symbol
from proton.reactor import AtMostOnce, Copy, DynamicNodeProperties
from proton.utils import LinkDetached, SendException

from broker_shim.amqp_1_0.composites import Attach, Flow, Source, Target, Transfer
from tests.support.system.clients import (
    TIMEOUT_S,
    Holder,
    Pipelined,
    SecondMode,
    connected,
    is_empty,
    send,
    settle,
    take,
)
from tests.support.system.raw_peer import RawPeer

if TYPE_CHECKING:
    from tests.support.system.processes import BrokerProcess, StartBroker


pytestmark = [pytest.mark.system, pytest.mark.slow]

COMPARED = [
    *("body", "id", "subject", "reply_to", "correlation_id", "content_type", "durable"),
    *("priority", "properties", "annotations", "delivery_count", "ttl"),
]


def test_a_message_comes_out_as_it_went_in(broker: BrokerProcess) -> None:
    sent = Message(
        body={"delay": 5, "codes": [1, 2]},
        id=UUID(int=7),
        subject="new",
        reply_to="answers",
        correlation_id="c-1",
        content_type=symbol("text/plain"),
        durable=True,
        priority=6,
        properties={"carrier": "AA", "stops": 0, "late": True},
        annotations={symbol("x-opt-trace"): "t"},
    )
    send(broker.url, "orders", sent)
    (received,) = take(broker.url, "orders", 1)
    for name in COMPARED:
        assert getattr(received, name) == getattr(sent, name), name
    assert is_empty(broker.url, "orders")


@pytest.mark.parametrize("body", [b"\x00\xff" * 40, "text", None, [1, "a"], 12.5])
@pytest.mark.parametrize("inferred", [True, False])
def test_every_kind_of_body_survives(broker: BrokerProcess, body: object, inferred: bool) -> None:
    send(broker.url, "q", Message(body=body, inferred=inferred))
    (received,) = take(broker.url, "q", 1)
    assert received.body == body


def test_messages_of_one_sender_keep_their_order(broker: BrokerProcess) -> None:
    Pipelined(broker.url, "q", [Message(id=number) for number in range(500)]).run()
    assert [m.id for m in take(broker.url, "q", 500)] == list(range(500))


def test_a_higher_priority_overtakes(broker: BrokerProcess) -> None:
    send(broker.url, "q", Message(id=1), Message(id=2, priority=9), Message(id=3))
    assert [m.id for m in take(broker.url, "q", 3)] == [2, 1, 3]


def test_a_released_message_comes_again_in_its_old_place(broker: BrokerProcess) -> None:
    send(broker.url, "q", Message(id=1), Message(id=2))
    assert Holder(broker.url, "q", 1, decide=settle(Delivery.RELEASED)).run() == [1]
    again = take(broker.url, "q", 2)
    assert [(m.id, m.delivery_count) for m in again] == [(1, 0), (2, 0)]


def test_a_modified_message_comes_again_with_its_delivery_count_raised(
    broker: BrokerProcess,
) -> None:
    send(broker.url, "q", Message(id=1))
    assert Holder(broker.url, "q", 1, decide=settle(Delivery.MODIFIED, failed=True)).run() == [1]
    (again,) = take(broker.url, "q", 1)
    assert (again.delivery_count, again.first_acquirer) == (1, False)


class UndeliverableOnce(Holder):
    """Says of the first message that it is undeliverable here; then it has credit for one more."""

    def on_message(self, event: Any) -> None:
        self.received.append(event.message)
        if len(self.received) == 2:
            self._when_held()
            event.connection.close()
            return
        event.delivery.local.undeliverable = True
        event.delivery.update(Delivery.MODIFIED)

    def on_settled(self, event: Any) -> None:
        event.delivery.settle()
        event.receiver.flow(1)


def test_undeliverable_here_sends_the_message_to_another_consumer(broker: BrokerProcess) -> None:
    send(broker.url, "q", Message(id=1), Message(id=2))
    others: list[int] = []

    def take_the_other() -> None:
        others.extend(m.id for m in take(broker.url, "q", 1))

    holder = UndeliverableOnce(broker.url, "q", 1, take_the_other, options=SecondMode())
    assert (holder.run(), others) == ([1, 2], [1])


def test_a_rejected_message_does_not_come_again(broker: BrokerProcess) -> None:
    send(broker.url, "q", Message(id=1))

    def reject(delivery: Delivery) -> None:
        delivery.local.condition = Condition("app:bad", "not an order")
        settle(Delivery.REJECTED)(delivery)

    assert Holder(broker.url, "q", 1, decide=reject).run() == [1]
    assert is_empty(broker.url, "q")


def repeats(messages: list[Message]) -> list[tuple[Any, int, bool]]:
    return [(each.id, each.delivery_count, each.first_acquirer) for each in messages]


def test_what_a_consumer_held_that_closed_its_connection_is_redelivered_and_told_as_such(
    broker: BrokerProcess,
) -> None:
    """It left in good order, so nothing has failed; whoever is lost counts: the next test."""
    send(broker.url, "q", Message(id=1), Message(id=2))
    assert Holder(broker.url, "q", 2).run() == [1, 2]
    again = take(broker.url, "q", 2)
    assert repeats(again) == [(1, 0, False), (2, 0, False)]


def test_what_a_lost_connection_held_counts_as_failed(broker: BrokerProcess) -> None:
    send(broker.url, "q", Message(id=1), Message(id=2))
    with RawPeer(broker) as peer:
        peer.opened().begun().say(
            Attach("r", 0, True, source=Source("q"), target=Target("t")),
            Flow(0, 100, 0, 100, 0, 0, 2),
        )
        peer.until(Transfer)
        peer.until(Transfer)
    again = take(broker.url, "q", 2)
    assert repeats(again) == [(1, 1, False), (2, 1, False)]


def test_an_accept_is_confirmed_to_a_receiver_that_settles_second(broker: BrokerProcess) -> None:
    send(broker.url, "q", Message(id=1))
    with connected(broker.url) as connection:
        receiver = connection.create_receiver("q", credit=1, options=SecondMode())
        receiver.receive(timeout=TIMEOUT_S)
        delivery = receiver.fetcher.unsettled[0]
        delivery.update(Delivery.ACCEPTED)
        connection.wait(lambda: delivery.settled, timeout=TIMEOUT_S)
        assert delivery.remote_state == Delivery.ACCEPTED
    assert is_empty(broker.url, "q")


def test_a_settled_receiver_takes_messages_off_the_queue(broker: BrokerProcess) -> None:
    send(broker.url, "q", Message(id=1))
    with connected(broker.url) as connection:
        receiver = connection.create_receiver("q", credit=1, options=AtMostOnce())
        assert receiver.receive(timeout=TIMEOUT_S).id == 1
    assert is_empty(broker.url, "q")


def test_a_settled_send_is_not_answered_and_arrives(broker: BrokerProcess) -> None:
    with connected(broker.url) as connection:
        sender = connection.create_sender("q", options=AtMostOnce())
        sender.send(Message(id=1))
    assert [m.id for m in take(broker.url, "q", 1)] == [1]


def test_browsing_takes_nothing(broker: BrokerProcess) -> None:
    send(broker.url, "q", Message(id=1), Message(id=2))
    with connected(broker.url) as connection:
        receiver = connection.create_receiver("q", credit=10, options=Copy())
        assert [receiver.receive(timeout=TIMEOUT_S).id for _ in range(2)] == [1, 2]
    assert [m.id for m in take(broker.url, "q", 2)] == [1, 2]


def test_an_expired_message_is_not_delivered(broker: BrokerProcess) -> None:
    with connected(broker.url) as connection:
        sender = connection.create_sender("q")
        sender.send(Message(id=1, expiry_time=1.0))
        sender.send(Message(id=2, ttl=3600))
    (received,) = take(broker.url, "q", 1)
    assert received.id == 2
    assert 0 < received.ttl <= 3600
    assert is_empty(broker.url, "q")


def test_no_more_messages_come_than_there_is_credit(broker: BrokerProcess) -> None:
    send(broker.url, "q", *(Message(id=number) for number in range(5)))
    rest: list[int] = []
    holder = Holder(broker.url, "q", 2, lambda: rest.extend(m.id for m in take(broker.url, "q", 3)))
    assert (holder.run(), rest) == ([0, 1], [2, 3, 4])


def test_two_consumers_share_a_queue(broker: BrokerProcess) -> None:
    with connected(broker.url) as one, connected(broker.url) as two:
        receivers = [connection.create_receiver("q", credit=2) for connection in (one, two)]
        send(broker.url, "q", *(Message(id=number) for number in range(4)))
        got = [{r.receive(timeout=TIMEOUT_S).id for _ in range(2)} for r in receivers]
        assert got[0] | got[1] == {0, 1, 2, 3}


def test_ten_megabytes_pass(broker: BrokerProcess) -> None:
    body = bytes(range(256)) * (10 << 12)
    send(broker.url, "q", Message(body=body, inferred=True, durable=True))
    (received,) = take(broker.url, "q", 1)
    assert received.body == body


def test_a_message_over_the_limit_detaches_its_link_and_nothing_else(
    start_broker: StartBroker, tmp_path_factory: pytest.TempPathFactory
) -> None:
    settings = tmp_path_factory.mktemp("settings") / "sparkstore.toml"
    settings.write_text("[store]\nmax_message_bytes = 100_000\n")
    broker = start_broker("--memory", "--config", str(settings))
    with connected(broker.url) as connection:
        sender = connection.create_sender("q")
        with pytest.raises(LinkDetached, match="message-size-exceeded"):
            sender.send(Message(body=b"x" * 3_000_000, inferred=True))
        connection.create_sender("q", name="another").send(Message(id=1))
    assert [m.id for m in take(broker.url, "q", 1)] == [1]


def test_a_body_is_not_touched_by_ten_thousand_other_messages(broker: BrokerProcess) -> None:
    body = bytes(range(120))
    send(broker.url, "held", Message(body=body, inferred=True))
    others = [Message(id=n, body=b"\xaa" * 120, inferred=True) for n in range(10_000)]
    assert len(Pipelined(broker.url, "other", others).run().accepted) == 10_000
    take(broker.url, "other", 10_000)
    (received,) = take(broker.url, "held", 1)
    assert received.body == body


def test_several_clients_at_once_get_every_message_once(broker: BrokerProcess) -> None:
    def publish(first: int) -> None:
        Pipelined(broker.url, "q", [Message(id=first + n) for n in range(300)]).run()

    threads = [threading.Thread(target=publish, args=(1000 * n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    received = take(broker.url, "q", 1800)
    for thread in threads:
        thread.join()
    assert sorted(m.id for m in received) == [1000 * n + i for n in range(6) for i in range(300)]


def test_a_dynamic_source_is_a_queue_of_its_own(broker: BrokerProcess) -> None:
    with connected(broker.url) as connection:
        receiver = connection.create_receiver(
            None, credit=1, dynamic=True, options=DynamicNodeProperties({})
        )
        address = receiver.link.remote_source.address
        send(broker.url, address, Message(id=1))
        assert receiver.receive(timeout=TIMEOUT_S).id == 1


def test_an_unreadable_message_is_rejected(broker: BrokerProcess) -> None:
    with connected(broker.url) as connection:
        sender = connection.create_sender("q")
        delivery = sender.link.delivery("1")
        sender.link.stream(b"this is no message")
        sender.link.advance()
        connection.wait(lambda: delivery.settled, timeout=TIMEOUT_S)
        assert delivery.remote_state == Delivery.REJECTED
        assert delivery.remote.condition.name == "amqp:decode-error"


def test_an_anonymous_sender_is_routed_by_to(broker: BrokerProcess) -> None:
    take_nothing = is_empty(broker.url, "q")
    assert take_nothing
    with connected(broker.url) as connection:
        sender = connection.create_sender(None)
        sender.send(Message(id=1, address="q"))
        with pytest.raises(SendException):
            sender.send(Message(id=2, address="amq.nowhere"))
        sender.send(Message(id=3, address="made.by.a.message"))
    assert [m.id for m in take(broker.url, "q", 1)] == [1]
    assert [m.id for m in take(broker.url, "made.by.a.message", 1)] == [3]
