"""An administrator beside consumers, transactions, durable links and settings, on one broker."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker_shim.addressing.bindings import Routing
from broker_shim.amqp_1_0.composites import (
    Accepted,
    Attach,
    Coordinator,
    Declare,
    DeleteOnClose,
    Detach,
    Discharge,
    Disposition,
    Modified,
    Rejected,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from broker_shim.amqp_1_0.primitives import Symbol
from broker_shim.broker.orders import bulk_turns
from broker_shim.broker.settings import AddressSettings, BrokerSettings
from broker_shim.broker.wiring import routing
from broker_shim.durability import TerminusDurability
from broker_shim.errors import InvalidRequest, StoreError, Unavailable
from broker_shim.protocol_1_0.codec.encoder import write
from broker_shim.protocol_1_0.codec.values import Described
from broker_shim.store.interface import Exchange, ExchangeBindingKey, Queue
from sparkstore.core.policies import Policy
from sparkstore.operations import administration
from sparkstore.operations.administration import AdminAction, Order
from sparkstore.operations.bulk import TURN_IDS, Answer
from tests.support.amqp.link_clients import Client, House, Place
from tests.support.amqp.orders import ask, bodies, consumer, entries, publish
from tests.support.stores.stores import RecordedMessageStore

SETTINGS = BrokerSettings(addresses=(AddressSettings("news.#", Routing.MULTICAST),))
DELETED, LOCKED = "amqp:resource-deleted", "amqp:resource-locked"
VALUE = b"\0\x53\x77"


@pytest.fixture
def house(tmp_path: Path) -> House:
    """A broker over a store of tier 2."""
    return House(Place("recorded", tmp_path), SETTINGS)


def alter(queue: str, **arguments: Any) -> Order:
    return Order(AdminAction.ALTER_QUEUE, queue, arguments=arguments)


def delete(queue: str, *, force: bool = False) -> Order:
    return Order(AdminAction.DELETE_QUEUE, queue, force=force)


def arguments(house: House, queue: str = "q") -> Any:
    [found] = [each.arguments for each in house.store.recover().queues if each.name == queue]
    return found


# ------------------------------------------------------------------------------------- alter


def test_a_lower_limit_of_deliveries_takes_what_has_failed_too_often_at_once(house: House) -> None:
    publish(house, "q", "failed", "fine")
    client = consumer(house, credit=1)
    for _ in range(3):
        [(transfer, _payload)] = client.taken(Transfer)
        client.dispose(transfer.delivery_id, Modified(delivery_failed=True))
        client.credit(1, delivery_count=transfer.delivery_id + 1)
    client.vanish()
    ask(house, alter("q", max_delivery_count=2, dead_letter_queue="dead"))
    house.run()
    assert bodies(consumer(house, "dead", 10)) == ["failed"]
    assert bodies(consumer(house, "q", 10)) == ["fine"]


def test_an_exclusive_queue_refuses_the_next_consumer_at_once_and_no_more_when_it_is_not(
    house: House,
) -> None:
    consumer(house, name="first")
    ask(house, alter("q", exclusive=True))
    second = Client(house, "second")
    second.attach("in", source=Source("q"))
    assert second.take(Detach).error.condition == LOCKED
    ask(house, alter("q", exclusive=None))
    consumer(house, name="third")
    with pytest.raises(InvalidRequest, match="has 2 consumers, exclusive is for one at most"):
        ask(house, alter("q", exclusive=True))
    assert arguments(house) == {}


def test_message_groups_begin_and_end_only_without_consumers(house: House) -> None:
    first = consumer(house)
    for wanted in (True, False):
        with pytest.raises(InvalidRequest, match=r"has 1 consumers: message_groups changes"):
            ask(house, alter("q", message_groups=not arguments(house)))
        first.vanish()
        assert ask(house, alter("q", message_groups=wanted or None))["changed"]
        publish(house, "q", "a", "b")
        first = consumer(house, credit=2)
        assert bodies(first) == ["a", "b"]
        first.dispose(0, Accepted())
        first.dispose(1, Accepted())


def test_a_consumer_that_attaches_while_groups_are_refused_still_gets_what_it_selects(
    house: House,
) -> None:
    publish(house, "q", "of no colour")
    assert isinstance(house.store, RecordedMessageStore)
    told: list[StoreError | None] = []
    selector = Described(Symbol("apache.org:selector-filter:string"), "colour = 'red'")
    with house.store_that_does_not_answer():
        house.store.sink.is_full = True
        house.broker.administration.order(
            alter("q", message_groups=True), lambda error, _told: told.append(error)
        )
        house.store.sink.is_full = False
        client = Client(house)
        client.send(Attach("in", 0, True, source=Source("q", filter={Symbol("s"): selector})))
    [refusal] = told
    assert isinstance(refusal, Unavailable)
    assert house.broker.queues["q"].consumer_count == 1
    client.credit(1)
    assert bodies(client) == []
    assert bodies(consumer(house, credit=1, name="of all")) == ["of no colour"]


def test_last_values_begin_on_an_empty_queue_and_hold_for_what_is_under_way(house: House) -> None:
    ask(house, Order(AdminAction.CREATE_QUEUE, "q"))
    sender = Client(house, "sender")
    sender.attach("out", target=Target("q"), is_receiver=False)
    with house.store_that_does_not_answer():
        house.broker.administration.order(
            alter("q", last_value_key="amqp.subject"), lambda _error, _told: None
        )
        sender.deliver(b"1", "one")
    sender.settle_down()
    publish(house, "q", "two")
    assert len(entries(house)) == 2, "neither has a subject: nothing is replaced"
    with pytest.raises(InvalidRequest, match="has 2 messages: last_value_key changes"):
        ask(house, alter("q", last_value_key=None))


def test_an_alteration_that_the_store_has_no_room_for_is_undone(house: House) -> None:
    ask(house, Order(AdminAction.CREATE_QUEUE, "q"))
    assert isinstance(house.store, RecordedMessageStore)
    house.store.sink.is_full = True
    with pytest.raises(Unavailable):
        ask(house, alter("q", exclusive=True, message_groups=True))
    house.store.sink.is_full = False
    assert not house.broker.queues["q"].arguments.exclusive
    assert ask(house, alter("q", exclusive=True))["changed"]
    assert arguments(house.restarted()) == {"exclusive": True}


def test_what_was_altered_is_so_after_a_kill(house: House) -> None:
    publish(house, "q", "a")
    ask(house, alter("q", max_delivery_count=4))
    again = house.restarted()
    assert again.broker.queues["q"].arguments.max_delivery_count == 4
    assert bodies(consumer(again, credit=1)) == ["a"]


# ------------------------------------------------------------------------------------ delete


def test_a_queue_with_a_consumer_is_deleted_by_force_and_its_client_is_told(house: House) -> None:
    publish(house, "q", "held", "waiting")
    client = consumer(house, credit=1)
    browser = Client(house, "browser")
    browser.attach("look", source=Source("q", distribution_mode="copy"))
    with pytest.raises(InvalidRequest, match="has 2 messages, 1 consumers: --force"):
        ask(house, delete("q"))
    assert ask(house, delete("q", force=True))["messages_lost"] == 2
    for each in (client, browser):
        detach = each.take(Detach)
        assert (detach.error.condition, detach.closed) == (DELETED, True)
    assert "q" not in house.store.recover().entries
    client.dispose(0, Accepted())
    house.run_delayed()
    assert not house.fatal
    publish(house, "q", "new")
    assert bodies(consumer(house, credit=5, name="next")) == ["new"]


def test_a_message_on_its_way_counts_so_that_nothing_acknowledged_is_lost(house: House) -> None:
    ask(house, Order(AdminAction.CREATE_QUEUE, "q"))
    sender = Client(house, "sender")
    sender.attach("out", target=Target("q"), is_receiver=False)
    refusals: list[StoreError | None] = []
    with house.store_that_does_not_answer():
        sender.deliver(b"1", "one")
        house.broker.administration.order(delete("q"), lambda error, _told: refusals.append(error))
    assert "has 1 messages" in str(refusals[0])
    assert sender.take(Disposition).state == Accepted()
    assert len(entries(house)) == 1


def transacting(house: House) -> tuple[Client, bytes]:
    client = Client(house, "transacting")
    client.attach("txn", 1, is_receiver=False, target=Coordinator())
    client.deliver_encoded(b"declare", VALUE + write(Declare()), 1)
    return client, client.take(Disposition).state.txn_id


def test_what_a_transaction_sends_to_a_deleted_queue_is_refused_with_its_commit(
    house: House,
) -> None:
    client, txn_id = transacting(house)
    for handle, queue in ((2, "q"), (3, "other")):
        client.attach(queue, handle, target=Target(queue), is_receiver=False)
        client.deliver(b"%d" % handle, "sent", handle, state=TransactionalState(txn_id, None))
    client.taken(Disposition)
    ask(house, delete("q"))
    client.deliver_encoded(b"discharge", VALUE + write(Discharge(txn_id, False)), 1)
    answers = [told.state for told, _ in client.taken(Disposition)]
    assert any(isinstance(state, Rejected) for state in answers)
    assert entries(house, "other") == []


def test_what_a_transaction_takes_from_a_queue_that_is_altered_is_taken(house: House) -> None:
    publish(house, "q", "a", "b")
    client, txn_id = transacting(house)
    client.attach("in", 2, source=Source("q"))
    client.credit(1, 2)
    [(transfer, _payload)] = client.taken(Transfer)
    state = TransactionalState(txn_id, Accepted())
    client.dispose(transfer.delivery_id, state, settled=True)
    ask(house, alter("q", max_delivery_count=1, message_ttl_ms=60_000))
    client.deliver_encoded(b"discharge", VALUE + write(Discharge(txn_id, False)), 1)
    client.taken(Disposition)
    assert len(entries(house)) == 1


def subscriber(house: House) -> Client:
    client = Client(house, "desk")
    told = {"distribution_mode": "copy", "capabilities": ("topic",)}
    client.attach("prices", source=Source("news.eu", 2, "never", **told))
    return client


def test_the_queue_of_a_durable_subscription_goes_only_with_it(house: House) -> None:
    client = subscriber(house)
    [name] = house.broker.queues
    with pytest.raises(InvalidRequest, match="link 'prices' of 'desk', which is attached"):
        ask(house, delete(name, force=True))
    client.vanish()
    publish(house, "news.eu", "a")
    with pytest.raises(InvalidRequest, match="1 messages, the subscription that is link 'prices'"):
        ask(house, delete(name))
    assert ask(house, delete(name, force=True))["messages_lost"] == 1
    again = house.restarted()
    assert not again.broker.queues
    assert not again.store.recover().links


def test_a_reply_queue_goes_with_its_link_and_not_before(house: House) -> None:
    client = Client(house)
    node = {Symbol("lifetime-policy"): DeleteOnClose()}
    source = client.attach("r", source=Source(dynamic=True, dynamic_node_properties=node)).source
    with pytest.raises(InvalidRequest, match="which is attached"):
        ask(house, delete(source.address, force=True))
    client.vanish()
    assert source.address not in house.broker.queues


def test_a_deleted_queue_stays_away_after_a_kill_in_the_middle(house: House) -> None:
    publish(house, "q", "a")
    with house.store_that_does_not_answer():
        house.broker.administration.order(delete("q", force=True), lambda _error, _told: None)
        again = House(house.place, SETTINGS)  # what the log has is whole: bindings and queue
        assert "q" not in again.broker.queues
        again.close()


def test_an_exchange_that_goes_takes_its_routes_with_it(house: House) -> None:
    ask(house, Order(AdminAction.CREATE_EXCHANGE, exchange="news", type="fanout"))
    ask(house, Order(AdminAction.CREATE_QUEUE, "q"))
    ask(house, Order(AdminAction.ADD_BINDING, "q", "news", "a"))
    publish(house, "news", "one")
    assert len(entries(house)) == 1
    told = ask(house, Order(AdminAction.DELETE_EXCHANGE, exchange="news", force=True))
    assert told["bindings_removed"] == 1
    assert house.broker.router.bindings() == set()
    ask(house, Order(AdminAction.CREATE_EXCHANGE, exchange="news", type="topic"))
    publish(house, "news/a", "two")
    assert len(entries(house)) == 1, "the new exchange has none of the old bindings"
    ask(house, delete("q", force=True))


def test_two_that_delete_and_create_the_same_queue_at_once_both_get_an_answer(
    house: House,
) -> None:
    publish(house, "q", "old")
    answers: list[StoreError | None] = []
    orders = [
        delete("q", force=True),
        delete("q"),
        Order(AdminAction.CREATE_QUEUE, "q"),
        delete("q"),
    ]
    with house.store_that_does_not_answer():
        for order in orders:
            house.broker.administration.order(order, lambda error, _told: answers.append(error))
    house.run()
    kinds = [type(error) for error in answers]
    assert sorted(kinds, key=str) == sorted(
        [type(None), InvalidRequest, type(None), InvalidRequest], key=str
    )
    assert entries(house) == []


# ------------------------------------------------------------------------------------- purge


@pytest.fixture
def _short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A purge of 251 messages takes two turns, and the second waits for the first."""
    monkeypatch.setattr(bulk_turns, "RUN_IDS", TURN_IDS)
    monkeypatch.setattr(bulk_turns, "_MOST_WAITING", 1)


@pytest.mark.usefixtures("_short_runs")
def test_a_purge_takes_turns_with_others_and_leaves_what_comes_meanwhile(house: House) -> None:
    publish(house, "q", *(str(number) for number in range(TURN_IDS + 1)))
    seen: list[Answer] = []
    ended: list[tuple[StoreError | None, Answer]] = []

    def show(so_far: Answer) -> bool:
        seen.append(so_far)
        return True

    purge = house.broker.administration.purge
    purge("q", show, lambda error, total: ended.append((error, total)))
    house.run()
    assert not ended
    publish(house, "q", "new")
    while house.delayed:
        house.run_delayed()
    assert ended == [(None, Answer(done=TURN_IDS + 1))]
    assert seen == [Answer(), Answer(done=TURN_IDS), Answer(done=TURN_IDS + 1)]
    assert bodies(consumer(house, credit=5)) == ["new"]


@pytest.mark.usefixtures("_short_runs")
@pytest.mark.parametrize("why", ["nobody waits", "the broker stops"])
def test_a_purge_ends_between_two_turns(house: House, why: str) -> None:
    publish(house, "q", *(str(number) for number in range(TURN_IDS + 1)))
    ended: list[tuple[StoreError | None, Answer]] = []
    asks: list[bool] = []

    def show(_so_far: Answer) -> bool:
        asks.append(True)
        house.broker.is_stopping = why == "the broker stops" and len(asks) == 2
        return why != "nobody waits" or len(asks) == 1

    purge = house.broker.administration.purge
    purge("q", show, lambda error, total: ended.append((error, total)))
    house.run()
    while house.delayed:
        house.run_delayed()
    [(error, total)] = ended
    assert total == Answer(done=TURN_IDS)
    assert (error is None) == (why == "nobody waits")
    assert len(entries(house)) == 1


def parts_of(house: House, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the parts of a purge as they are taken."""
    run_part, parts = house.broker.bulk.run_part, list[int]()

    def noted(*terms: Any) -> int:
        parts.append(run_part(*terms))
        return parts[-1]

    monkeypatch.setattr(house.broker.bulk, "run_part", noted)
    return parts


def purged(house: House) -> Answer:
    totals: list[Answer] = []
    house.broker.administration.purge("q", lambda _: True, lambda _error, it: totals.append(it))
    house.run()
    while house.delayed:
        house.run_delayed()
    [total] = totals
    return total


def test_a_queue_of_short_runs_is_purged_by_turns_and_one_of_long_runs_at_once(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = parts_of(house, monkeypatch)
    count = 2 * TURN_IDS + 2
    publish(house, "q", *map(str, range(count)))
    assert (purged(house), parts) == (Answer(done=count), [count])
    parts.clear()
    publish(house, "q", *map(str, range(count)))
    ids = entries(house)
    house.broker.queues["q"].withdraw(ids[::2])
    assert purged(house) == Answer(done=count // 2, left=count // 2)
    assert parts == [TURN_IDS, TURN_IDS, 2]


@pytest.mark.parametrize("why", ["not durable", "in memory"])
def test_where_the_store_decides_each_message_by_itself_a_turn_takes_fewer(
    house: House, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, why: str
) -> None:
    if why == "in memory":
        house = House(Place("memory", tmp_path), SETTINGS)
    parts = parts_of(house, monkeypatch)
    publish(house, "q", *map(str, range(TURN_IDS)))
    client = Client(house, "publisher")
    client.attach("out", target=Target("q"), is_receiver=False)
    client.deliver_encoded(b"last", VALUE + b"\x40")  # durable only if its header says so
    assert (purged(house), parts) == (Answer(done=TURN_IDS + 1), [TURN_IDS, 1])


def test_a_purge_takes_one_part_a_turn_also_where_answers_come_at_once(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two parts wait for the store; of those that follow nothing waits, so nothing is asked."""
    monkeypatch.setattr(bulk_turns, "RUN_IDS", 1)
    monkeypatch.setattr(bulk_turns, "_MOST_WAITING", 3)
    parts = parts_of(house, monkeypatch)
    publish(house, "q", *map(str, range(12)))
    ids = entries(house)
    house.broker.queues["q"].withdraw(ids[2:])
    with house.store_that_does_not_answer():
        house.broker.administration.purge("q", lambda _: True, lambda *_: None)
        turns = []
        while house.delayed:
            before = len(parts)
            house.run_delayed()
            turns.append(len(parts) - before)
    assert max(turns) == 1
    assert len(parts) == 12


# ------------------------------------------------------------------------- settings at the start

Q = Queue("q", arguments={"max_delivery_count": 3})


def started(house: House, **settings: Any) -> House:
    house.settings = replace(SETTINGS, **settings)
    return house.restarted()


def test_what_the_settings_say_of_a_queue_is_applied_to_what_is_there(house: House) -> None:
    publish(house, "q", "a")
    again = started(house, queues=(Q,))
    assert arguments(again) == Q.arguments
    assert again.broker.queues["q"].arguments.max_delivery_count == 3
    assert bodies(consumer(again, credit=1)) == ["a"]
    told = ask(again, alter("q", max_delivery_count=9))
    assert "settings" in told["note"]


def test_policies_of_the_settings_are_set_and_stay_until_they_are_deleted(house: House) -> None:
    publish(house, "q", "a")
    policy = Policy("p", "#", 0, {"max_depth": 1, "max_delivery_count": 5})
    again = started(house, policies=(policy,), queues=(Q,))
    q = again.broker.queues["q"].arguments
    assert (q.max_depth, q.max_delivery_count) == (1, 3)
    delete_it = Order(AdminAction.DELETE_POLICY, key="p")
    assert "settings" in ask(again, delete_it)["note"]
    later = started(again, policies=(policy,))
    later = started(later)
    assert later.broker.queues["q"].arguments.max_depth == 1
    assert "note" not in ask(later, delete_it)
    assert later.broker.queues["q"].arguments.max_depth is None


def test_settings_that_give_a_queue_no_arguments_leave_it_those_it_has(house: House) -> None:
    ask(house, Order(AdminAction.CREATE_QUEUE, "q", arguments=Q.arguments))
    assert arguments(started(house, queues=(Queue("q"),))) == Q.arguments


@pytest.mark.parametrize(
    ("settings", "command"),
    [
        ({"queues": (Queue("q", TerminusDurability.NONE),)}, "sparkstore queue delete ROOT 'q'"),
        (
            {"queues": (Queue("q", arguments={"last_value_key": "k"}),)},
            "sparkstore queue purge ROOT 'q'",
        ),
        ({"exchanges": (Exchange("x", "direct"),)}, "sparkstore exchange delete ROOT 'x'"),
        (
            {"policies": (Policy("p", "q", 0, {"last_value_key": "k"}),)},
            "sparkstore queue purge ROOT 'q'",
        ),
    ],
    ids=["durability", "last values", "exchange", "policy"],
)
def test_a_start_that_cannot_apply_the_settings_changes_nothing_and_names_the_command(
    house: House, settings: dict[str, Any], command: str
) -> None:
    ask(house, Order(AdminAction.CREATE_EXCHANGE, exchange="x", type="topic"))
    publish(house, "q", "a")
    settings = {**settings, "queues": (Queue("new"), *settings.get("queues", ()))}
    with pytest.raises(InvalidRequest, match=command):
        started(house, **settings)
    again = started(house)
    assert {*again.broker.queues} == {"q"}


def test_a_queue_that_the_settings_name_comes_back_and_who_deletes_it_is_told(house: House) -> None:
    key = ExchangeBindingKey("amq.topic", "q", "#")
    again = started(house, queues=(Q,), bindings=(key,), exchanges=(Exchange("x", "direct"),))
    for order in (
        Order(AdminAction.REMOVE_BINDING, "q", "amq.topic", "#"),
        Order(AdminAction.DELETE_EXCHANGE, exchange="x"),
        delete("q"),
    ):
        assert "settings" in ask(again, order)["note"]
    assert "note" not in ask(again, Order(AdminAction.CREATE_QUEUE, "beside"))


def test_the_broker_and_an_administrator_know_the_same_exchanges() -> None:
    assert {*routing.DEFAULT_EXCHANGES} == {*administration.DEFAULT_EXCHANGES}
