"""Local transactions on the wire: proton's engine on the other side, no socket."""

from __future__ import annotations

import time
from collections.abc import Iterator

import proton
import pytest
from proton import Delivery, Described, Endpoint, symbol

from broker_shim.completion import OnComplete
from broker_shim.durability import TerminusDurability
from broker_shim.errors import StoreError, Unavailable
from broker_shim.store.interface import Queue, TransactionContext
from broker_shim.store.memory import MemoryMessageStore
from tests.support.amqp.bench import received
from tests.support.amqp.transaction_clients import DECLARED, TRANSACTIONAL, Client

ROLLBACK, UNKNOWN = "amqp:transaction:rollback", "amqp:transaction:unknown-id"


class FailingCommits(MemoryMessageStore):
    """A store that does not answer a commit while this is so."""

    is_failing = False

    def commit(self, transaction: TransactionContext, on_complete: OnComplete) -> None:
        if not self.is_failing:
            super().commit(transaction, on_complete)
            return

        def failed(_error: StoreError | None) -> None:
            on_complete(Unavailable("no answer"))

        super().abort(transaction, failed)


@pytest.fixture
def store() -> Iterator[FailingCommits]:
    it = FailingCommits()
    yield it
    it.close()


@pytest.fixture
def client(store: FailingCommits) -> Iterator[Client]:
    it = Client(store)
    yield it
    it.ours.lost()
    it.run()
    assert not it.fatal


def refused_with(delivery: Delivery) -> str:
    assert delivery.settled
    assert delivery.remote_state == Delivery.REJECTED
    return str(delivery.remote.condition.name)


def outcome_of(delivery: Delivery) -> tuple[bytes, int]:
    """Transaction and outcome's code of a delivery that was answered within a transaction."""
    assert delivery.settled
    assert delivery.remote_state == TRANSACTIONAL
    txn_id, outcome = delivery.remote.data
    codes = {"amqp:accepted:list": 0x24, "amqp:rejected:list": 0x25}
    return bytes(txn_id), codes.get(outcome.descriptor, outcome.descriptor)


def test_the_coordinator_tells_what_it_can_do(client: Client) -> None:
    remote = client.coordinator.remote_target
    assert remote.type == proton.Terminus.COORDINATOR
    remote.capabilities.next()
    offered = {str(each) for each in remote.capabilities.get_py_array().elements}
    named = {"local-transactions", "multi-txns-per-ssn", "multi-ssns-per-txn"}
    assert offered == {f"amqp:{name}" for name in named}


def test_what_is_sent_is_there_when_the_discharge_is_answered(client: Client) -> None:
    receiver = client.receiver(credit=10)
    txn_id = client.declare()
    answers = [client.post(txn_id, body) for body in ("a", "b")]
    assert [outcome_of(each) for each in answers] == [(txn_id, 0x24)] * 2
    assert client.bodies == []
    assert received(receiver) == []
    assert client.discharge(txn_id).remote_state == Delivery.ACCEPTED
    assert client.bodies == ["a", "b"]
    assert len(received(receiver)) == 2
    assert client.broker.metrics.transactions_committed == 1
    assert client.broker.metrics.enqueued == 2


def test_what_is_rolled_back_is_nowhere(client: Client) -> None:
    txn_id = client.declare()
    client.post(txn_id, "a")
    assert client.discharge(txn_id, fail=True).remote_state == Delivery.ACCEPTED
    assert client.bodies == []
    assert client.broker.metrics.transactions_rolled_back == 1
    assert refused_with(client.discharge(txn_id)) == UNKNOWN


def test_a_transaction_of_nothing_is_committed(client: Client) -> None:
    assert client.discharge(client.declare()).remote_state == Delivery.ACCEPTED
    assert client.broker.metrics.transactions_committed == 0


def test_the_next_transaction_may_be_declared_before_the_last_one_is_answered(
    client: Client,
) -> None:
    txn_id = client.declare()
    client.post(txn_id, "a")
    discharge = client.command(Described(symbol("amqp:discharge:list"), [txn_id, False]))
    declare = client.command(Described(symbol("amqp:declare:list"), []))
    client.exchange()
    assert discharge.remote_state == Delivery.ACCEPTED
    assert declare.remote_state == DECLARED


@pytest.mark.parametrize("settled", [True, False])
def test_what_is_accepted_leaves_the_queue_at_the_commit(client: Client, *, settled: bool) -> None:
    client.publish(3, 10)
    receiver = client.receiver(credit=3)
    client.exchange()
    deliveries = received(receiver)
    txn_id = client.declare()
    for delivery in deliveries[:2]:
        client.retire(txn_id, delivery, settled=settled)
    assert len(client.bodies) == 3
    assert client.discharge(txn_id).remote_state == Delivery.ACCEPTED
    assert len(client.bodies) == 1
    if not settled:
        assert [each.settled for each in deliveries] == [True, True, False]
        assert deliveries[0].remote_state == Delivery.ACCEPTED
    assert client.broker.metrics.accepted == 2
    assert len(client.broker.queues["q"]) == 1


def test_what_was_settled_and_is_rolled_back_comes_again_as_a_failed_delivery(
    client: Client,
) -> None:
    client.publish(2, 10)
    receiver = client.receiver(credit=2)
    client.exchange()
    first, second = received(receiver)
    txn_id = client.declare()
    client.retire(txn_id, first)
    receiver.flow(5)
    client.exchange()
    assert received(receiver) == []
    client.discharge(txn_id, fail=True)
    (again,) = received(receiver)
    assert again.tag == first.tag
    assert client.counts() == [1, 0]
    second.update(Delivery.ACCEPTED)
    second.settle()
    client.exchange()
    assert len(client.bodies) == 1


def test_what_was_not_settled_and_is_rolled_back_is_the_clients_to_decide_again(
    client: Client,
) -> None:
    client.publish(2, 10)
    receiver = client.receiver(credit=5)
    client.exchange()
    first, second = received(receiver)
    txn_id = client.declare()
    for delivery in (first, second):
        client.retire(txn_id, delivery, settled=False)
    client.discharge(txn_id, fail=True)
    assert received(receiver) == []
    assert not first.settled
    first.update(Delivery.ACCEPTED)
    first.settle()
    client.retire(client.declare(), second)
    assert len(client.bodies) == 1
    assert client.counts() == [0]


def test_other_outcomes_hold_at_the_commit_too(client: Client) -> None:
    client.publish(4, 10)
    receiver = client.receiver(credit=4)
    client.exchange()
    accepted, rejected, released, modified = received(receiver)
    txn_id = client.declare()
    client.retire(txn_id, accepted)
    client.retire(txn_id, rejected, Delivery.REJECTED)
    client.retire(txn_id, released, Delivery.RELEASED)
    client.retire(txn_id, modified, Delivery.MODIFIED, (True, False))
    receiver.flow(4)
    client.exchange()
    assert received(receiver) == []
    client.discharge(txn_id)
    assert [each.tag for each in received(receiver)] == [released.tag, modified.tag]
    assert client.counts() == [0, 1]
    assert (client.broker.metrics.accepted, client.broker.metrics.rejected) == (1, 1)


def test_a_message_that_is_undeliverable_here_is_not_sent_here_again(client: Client) -> None:
    client.publish(1, 10)
    receiver = client.receiver(credit=2)
    client.exchange()
    (delivery,) = received(receiver)
    txn_id = client.declare()
    client.retire(txn_id, delivery, Delivery.MODIFIED, (True, True))
    client.discharge(txn_id)
    assert received(receiver) == []
    assert client.counts() == [1]


def test_an_outcome_that_is_changed_leaves_nothing_to_commit(client: Client) -> None:
    client.publish(1, 10)
    receiver = client.receiver(credit=1)
    client.exchange()
    (delivery,) = received(receiver)
    txn_id = client.declare()
    client.retire(txn_id, delivery, settled=False)
    client.retire(txn_id, delivery, Delivery.RELEASED)
    assert refused_with(client.discharge(txn_id)) == ROLLBACK
    assert client.counts() == [1]


def test_a_refused_message_leaves_only_a_rollback(client: Client) -> None:
    anonymous = client.sending("amq.topic")
    txn_id = client.declare()
    client.post(txn_id, "a")
    answer = client.post(txn_id, "b", anonymous, subject="nobody")
    assert outcome_of(answer) == (txn_id, 0x25)
    assert outcome_of(client.post(txn_id, "c")) == (txn_id, 0x25)
    discharged = client.discharge(txn_id)
    assert refused_with(discharged) == ROLLBACK
    assert "no queue" in str(discharged.remote.condition.description)
    assert client.bodies == []


def test_consuming_in_a_transaction_that_was_spoiled_waits_for_its_end(client: Client) -> None:
    client.publish(1, 10)
    receiver = client.receiver(credit=5)
    client.exchange()
    (delivery,) = received(receiver)
    txn_id = client.declare()
    client.post(txn_id, "b", client.sending("amq.topic"), subject="nobody")
    client.retire(txn_id, delivery)
    assert received(receiver) == []
    assert refused_with(client.discharge(txn_id)) == ROLLBACK
    assert len(received(receiver)) == 1


def test_an_unknown_transaction_ends_the_link_that_names_it(client: Client) -> None:
    client.post(b"nothing", "a")
    assert client.sender.remote_condition.name == UNKNOWN
    client.publish(1, 10)
    receiver = client.receiver(credit=1)
    client.exchange()
    client.retire(b"nothing", received(receiver)[0])
    assert receiver.remote_condition.name == UNKNOWN
    assert refused_with(client.discharge(b"nothing")) == UNKNOWN
    receiver.close()
    client.exchange()
    assert client.counts() == [1]


def test_the_end_of_the_coordinator_rolls_back_what_was_declared_on_it(client: Client) -> None:
    client.publish(1, 10)
    receiver = client.receiver(credit=5)
    client.exchange()
    txn_id = client.declare()
    client.post(txn_id, "a")
    client.retire(txn_id, received(receiver)[0])
    other = client.coordinate(name="other")
    kept = client.declare(other)
    client.post(kept, "b")
    client.coordinator.close()
    client.exchange()
    assert len(received(receiver)) == 1
    assert client.counts() == [1]
    client.post(txn_id, "c")
    assert client.sender.remote_condition.name == UNKNOWN
    client.coordinator = other
    assert client.discharge(kept).remote_state == Delivery.ACCEPTED
    assert client.bodies[1:] == ["b"]


def test_the_loss_of_the_connection_rolls_back(client: Client) -> None:
    client.publish(2, 10)
    receiver = client.receiver(credit=5)
    client.exchange()
    txn_id = client.declare()
    client.post(txn_id, "a")
    settled, unsettled = received(receiver)
    client.retire(txn_id, settled)
    client.retire(txn_id, unsettled, settled=False)
    client.ours.lost()
    client.run()
    assert client.counts() == [1, 1]
    assert all(e.acquired_by is None for e in client.store.recover().entries["q"].values())
    assert client.broker.metrics.transactions_rolled_back == 1


def test_a_receiver_may_end_before_what_it_settled_is_committed(client: Client) -> None:
    client.publish(2, 10)
    receiver = client.receiver(credit=2)
    client.exchange()
    txn_id = client.declare()
    client.retire(txn_id, received(receiver)[0])
    receiver.close()
    client.exchange()
    assert client.counts() == [0, 0]
    assert client.discharge(txn_id).remote_state == Delivery.ACCEPTED
    assert client.counts() == [0]


def test_a_temporary_queue_may_go_before_what_was_received_from_it_is_committed(
    client: Client,
) -> None:
    receiver = client.session.receiver("dynamic")
    receiver.source.dynamic = True
    receiver.open()
    receiver.flow(1)
    client.exchange()
    client.publish(1, 10, receiver.remote_source.address)
    client.exchange()
    txn_id = client.declare()
    client.retire(txn_id, received(receiver)[0])
    client.post(txn_id, "a")
    receiver.close()
    client.exchange()
    assert refused_with(client.discharge(txn_id)) == ROLLBACK
    assert client.bodies == []


def test_several_transactions_and_sessions_at_a_time(client: Client) -> None:
    other = client.theirs.session()
    other.open()
    elsewhere = client.sending("q", other)
    first, second = client.declare(), client.declare()
    client.post(first, "1")
    client.post(second, "2")
    client.post(first, "3", elsewhere)
    assert client.discharge(second).remote_state == Delivery.ACCEPTED
    assert client.bodies == ["2"]
    assert client.discharge(first).remote_state == Delivery.ACCEPTED
    assert client.bodies == ["2", "1", "3"]


def test_a_queue_that_is_destroyed_takes_only_its_own_messages_with_it(client: Client) -> None:
    for name in ("x", "y"):
        client.broker.create_queue(Queue(name, TerminusDurability.NONE), lambda _error: None)
        client.run()
        client.broker.router.bind("amq.fanout", "", name)
    fanout = client.sending("amq.fanout")
    both, none = client.declare(), client.declare()
    for txn_id in (both, none):
        client.post(txn_id, "news", fanout)
    client.broker.destroy_queue("x")
    assert client.discharge(both).remote_state == Delivery.ACCEPTED
    assert len(client.broker.queues["y"]) == 1
    client.broker.destroy_queue("y")
    assert refused_with(client.discharge(none)) == ROLLBACK


def test_of_last_values_the_last_one_of_a_transaction_stays(store: FailingCommits) -> None:
    client = Client(store, last_value_key="k")
    client.publish_one("old", properties={"k": "k"})
    txn_id = client.declare()
    for body, key in (("1", "k"), ("other", "l"), ("2", "k")):
        client.post(txn_id, body, properties={"k": key})
    client.discharge(txn_id)
    assert client.bodies == ["other", "2"]
    other = client.declare()
    client.post(other, "3", properties={"k": "k"})
    client.discharge(other, fail=True)
    assert client.bodies == ["other", "2"]
    client.ours.lost()


def test_two_transactions_with_the_same_values_do_not_wait_for_each_other(
    store: FailingCommits,
) -> None:
    client = Client(store, last_value_key="k")
    first, second = client.declare(), client.declare()
    for txn_id, keys in ((first, "kl"), (second, "lk")):
        for key in keys:
            client.post(txn_id, key, properties={"k": key})
    commands = [
        client.command(Described(symbol("amqp:discharge:list"), [each, False]))
        for each in (first, second)
    ]
    client.exchange()
    assert [each.remote_state for each in commands] == [Delivery.ACCEPTED] * 2
    assert client.bodies == ["l", "k"]
    client.ours.lost()


def test_a_large_message_is_in_its_place_though_the_discharge_came_with_it(
    client: Client,
) -> None:
    txn_id = client.declare()
    large = bytes(3 << 20)
    for body in (large, b"small"):
        client.write(txn_id, body)
    command = client.command(Described(symbol("amqp:discharge:list"), [txn_id, False]))
    client.exchange()
    assert command.remote_state == Delivery.ACCEPTED
    assert client.bodies == [large, b"small"]


def test_a_store_that_does_not_answer_leaves_it_open_what_became_of_it(
    client: Client, store: FailingCommits
) -> None:
    client.publish(1, 10)
    receiver = client.receiver(credit=5)
    client.exchange()
    txn_id = client.declare()
    client.post(txn_id, "a")
    client.retire(txn_id, received(receiver)[0])
    store.is_failing = True
    client.discharge(txn_id)
    assert client.coordinator.remote_condition.name == "amqp:internal-error"
    assert "not known" in client.coordinator.remote_condition.description
    assert len(received(receiver)) == 1
    assert client.counts() == [1]


def test_more_open_transactions_than_allowed_are_refused(client: Client) -> None:
    for _ in range(client.broker.settings.max_transactions):
        client.declare()
    refused = client.command(Described(symbol("amqp:declare:list"), []))
    client.exchange()
    assert refused_with(refused) == "amqp:resource-limit-exceeded"


def test_one_that_stays_open_for_too_long_is_undone_and_its_client_told(client: Client) -> None:
    client.publish(1, 10)
    receiver = client.receiver(credit=5)
    client.exchange()
    idle, txn_id = client.declare(), client.declare()
    client.retire(txn_id, received(receiver)[0])
    timeout_s = client.broker.settings.transaction_timeout_s
    client.ours.transactions.tick(time.monotonic() + timeout_s - 60)
    client.run()
    client.exchange()
    assert received(receiver) == []
    client.ours.transactions.tick(time.monotonic() + timeout_s)
    client.run()
    client.exchange()
    assert len(received(receiver)) == 1
    assert outcome_of(client.post(txn_id, "late")) == (txn_id, 0x25)
    assert refused_with(client.discharge(txn_id)) == "amqp:transaction:timeout"
    assert client.discharge(idle).remote_state == Delivery.ACCEPTED


def test_a_spoiled_one_gives_back_what_it_holds_when_its_time_is_over(client: Client) -> None:
    client.publish(1, 10)
    receiver = client.receiver(credit=5)
    client.exchange()
    txn_id = client.declare()
    relay = client.session.sender("relay")
    relay.open()
    client.exchange()
    client.post(txn_id, "to nowhere", relay)
    client.retire(txn_id, received(receiver)[0])
    client.exchange()
    assert received(receiver) == []
    timeout_s = client.broker.settings.transaction_timeout_s
    client.ours.transactions.tick(time.monotonic() + timeout_s)
    client.run()
    client.exchange()
    assert len(received(receiver)) == 1
    assert refused_with(client.discharge(txn_id)) == ROLLBACK


@pytest.mark.parametrize("settled", [True, False])
def test_what_cannot_be_routed_rolls_its_transaction_back_and_its_link_goes_on(
    client: Client, *, settled: bool
) -> None:
    """Of one that came settled the rollback is all that is told (Anonymous Terminus 2.2.2)."""
    txn_id = client.declare()
    relay = client.session.sender("relay")
    relay.open()
    client.exchange()
    client.post(txn_id, "to nowhere", relay, settled=settled)
    assert client.broker.metrics.unroutable == 1
    client.post(txn_id, "a")
    assert not relay.state & Endpoint.REMOTE_CLOSED
    assert relay.credit > 0
    assert refused_with(client.discharge(txn_id)) == ROLLBACK
    assert client.bodies == []


@pytest.mark.parametrize(
    ("body", "condition"),
    [
        ("declare", "amqp:decode-error"),
        (Described(symbol("amqp:accepted:list"), []), "amqp:decode-error"),
        ("x" * 5000, "amqp:link:message-size-exceeded"),
    ],
    ids=["text", "another composite", "too long"],
)
def test_what_is_no_command_ends_the_coordinator(
    client: Client, body: object, condition: str
) -> None:
    client.command(body)
    client.exchange()
    assert client.coordinator.state & Endpoint.REMOTE_CLOSED
    assert client.coordinator.remote_condition.name == condition


def test_a_declare_that_cannot_be_answered_ends_the_coordinator(client: Client) -> None:
    client.command(Described(symbol("amqp:declare:list"), []), settled=True)
    client.exchange()
    assert client.coordinator.remote_condition.name == "amqp:not-allowed"


def test_a_settled_discharge_is_done_and_not_answered(client: Client) -> None:
    txn_id = client.declare()
    client.post(txn_id, "a")
    body = Described(symbol("amqp:discharge:list"), [txn_id, False])
    client.command(body, settled=True)
    client.exchange()
    assert client.bodies == ["a"]


def test_a_distributed_transaction_is_refused(client: Client) -> None:
    refused = client.command(Described(symbol("amqp:declare:list"), [b"xid"]))
    client.exchange()
    assert refused_with(refused) == "amqp:not-implemented"


def test_a_client_that_takes_no_rejection_is_told_by_the_end_of_the_link(client: Client) -> None:
    client.coordinator = client.coordinate("amqp:accepted:list", "strict")
    client.discharge(b"nothing")
    assert client.coordinator.remote_condition.name == UNKNOWN
