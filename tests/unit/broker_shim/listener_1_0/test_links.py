"""Links of the embedded broker: who has one, what outlives it, what is resumed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_shim.addressing.bindings import Routing
from broker_shim.amqp_1_0.composites import (
    Accepted,
    Attach,
    Detach,
    Disposition,
    Flow,
    Modified,
    Released,
    Source,
    Target,
    Transfer,
)
from broker_shim.amqp_1_0.primitives import Symbol
from broker_shim.broker.settings import AddressSettings, BrokerSettings
from broker_shim.links.kept_link import KeptLink
from broker_shim.protocol_1_0.codec.values import Described
from broker_shim.store.interface import LinkKey
from sparkstore.core.link_records import link_text
from tests.support.amqp.link_clients import Client, House, Place

SETTINGS = BrokerSettings(addresses=(AddressSettings("news.#", Routing.MULTICAST),))
KEY = LinkKey("client", "out", "receiver")
STOLEN, LOCKED = "amqp:link:stolen", "amqp:resource-locked"
Open = Callable[..., House]


@pytest.fixture(params=["memory", "json", "recorded"])
def house(request: pytest.FixtureRequest, tmp_path: Path) -> House:
    """A broker over a store of each tier."""
    return House(Place(request.param, tmp_path), SETTINGS)


@pytest.fixture
def kept(tmp_path: Path) -> House:
    """A broker over a store of tier 2."""
    return House(Place("recorded", tmp_path), SETTINGS)


def durable(address: str = "q", **fields: Any) -> Source:
    return Source(address, durable=2, expiry_policy="never", **fields)


def subscription(address: str = "news.eu", selector: str | None = None, **fields: Any) -> Source:
    """As Qpid JMS asks for a durable subscription."""
    told = {"distribution_mode": "copy", "capabilities": ("topic",), **fields}
    if selector is not None:
        name = Symbol("apache.org:selector-filter:string")
        told["filter"] = {Symbol("jms-selector"): Described(name, selector)}
    return durable(address, **told)


def publish(house: House, address: str, *bodies: str) -> None:
    client = Client(house, "publisher")
    client.attach("out", target=Target(address), is_receiver=False)
    for number, body in enumerate(bodies):
        client.deliver(b"%d" % number, body)
    client.vanish()


def bodies(client: Client) -> list[Any]:
    return [body for _tag, body in client.transfers()]


def test_the_answer_says_what_was_granted_of_the_durability(house: House) -> None:
    tier = {"memory": 0, "json": 1, "recorded": 2}[house.place.kind]
    client = Client(house)
    source = client.attach("in", source=Source("q", 2, "never", 7)).source
    assert (source.durable, source.expiry_policy, source.timeout) == (tier, "never", 7)
    target = client.attach(
        "out", 1, target=Target("q", 2, "link-detach", 9), is_receiver=False
    ).target
    assert (target.durable, target.expiry_policy, target.timeout) == (tier, "link-detach", 9)
    browser = client.attach("look", 2, source=Source("q", 2, distribution_mode="copy")).source
    assert browser.durable == min(tier, 1)


def test_termini_survive_a_restart_as_their_store_can_keep_them(house: House) -> None:
    client = Client(house)
    client.attach("in", source=durable())
    client.attach("out", 1, target=Target("q", 2, "never"), is_receiver=False)
    client.attach("lost", 2, source=Source("q"))
    again = house.restarted()
    expected = set() if house.place.kind == "memory" else {"in", "out"}
    assert {key.name for key in again.registry._termini} == expected


def test_a_second_attach_takes_the_link_and_the_first_is_told(house: House) -> None:
    first, second = Client(house), Client(house)
    first.attach("in", source=Source("q"))
    first.credit(1)
    second.attach("in", source=Source("q"))
    second.credit(1)
    detach = first.take(Detach)
    assert (detach.error.condition, detach.closed) == (STOLEN, True)
    first.send(Detach(0, closed=True))
    publish(house, "q", "a")
    assert bodies(second) == ["a"]
    assert bodies(first) == []


def test_a_link_may_be_stolen_within_one_connection(house: House) -> None:
    client = Client(house)
    client.attach("in", 0, source=Source("q"))
    client.attach("in", 1, source=Source("q"))
    assert client.taken(Detach) == []  # passed over by `attach`: it came before the answer
    client.credit(1, 1)
    publish(house, "q", "a")
    assert bodies(client) == ["a"]


def test_links_of_one_name_in_both_directions_and_of_two_containers_do_not_meet(
    house: House,
) -> None:
    one, same, other = Client(house, "a"), Client(house, "a"), Client(house, "b")
    one.attach("l", source=Source("q"))
    same.attach("l", target=Target("q"), is_receiver=False)
    other.attach("l", source=Source("q"))
    assert [client.taken(Detach) for client in (one, same, other)] == [[], [], []]


def test_what_a_consumer_held_goes_back_when_its_link_is_stolen(house: House) -> None:
    publish_to = Client(house, "p")
    publish_to.attach("out", target=Target("q"), is_receiver=False)
    first, second = Client(house), Client(house)
    first.attach("in", source=Source("q"))
    first.credit(1)
    publish_to.deliver(b"1", "a")
    assert bodies(first) == ["a"]
    second.attach("in", source=Source("q"))
    second.credit(1)
    assert bodies(second) == ["a"]


@pytest.mark.parametrize("ends", ["link", "session", "closed"])
def test_a_consumer_of_no_durability_gives_back_what_it_held_when_its_terminus_ends(
    house: House, ends: str
) -> None:
    publish_to = Client(house, "p")
    publish_to.attach("out", target=Target("q"), is_receiver=False)
    publish_to.deliver(b"1", "a")
    client, other = Client(house), Client(house, "other")
    policy = "link-detach" if ends == "link" else "session-end"
    client.attach("in", source=Source("q", expiry_policy=policy))
    client.credit(1)
    assert bodies(client) == ["a"]
    client.detach(closed=ends == "closed")
    if ends == "session":
        client.end_session()
    other.attach("in", source=Source("q"))
    other.credit(1)
    assert bodies(other) == ["a"]


@pytest.mark.parametrize(
    ("policy", "ends"),
    [
        ("link-detach", ["detach"]),
        ("session-end", ["detach", "session"]),
        ("connection-close", ["detach", "session", "connection"]),
        ("never", ["detach", "session", "connection", None]),
    ],
)
def test_a_subscription_ends_with_what_its_expiry_policy_names(
    kept: House, policy: str, ends: list[str | None]
) -> None:
    client = Client(kept)
    client.attach("news", source=Source("news.eu", 1, policy))
    queue = "news.eu::subscription.client.news"
    for end in ends:
        assert queue in kept.broker.queues
        if end == "detach":
            client.detach()
        elif end == "session":
            client.end_session()
        elif end == "connection":
            client.close()
    assert (queue in kept.broker.queues) == (policy == "never")
    assert (queue in kept.restarted().broker.queues) == (policy == "never")


def test_a_detached_subscription_lives_for_its_timeout(
    kept: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(kept)
    client.attach("news", source=Source("news.eu", 1, "link-detach", 60))
    client.detach()
    (delay_s, _expire) = kept.delayed[-1]
    assert 59 < delay_s <= 60
    kept.run_delayed()  # early, as another timer could have been
    queue = "news.eu::subscription.client.news"
    assert queue in kept.broker.queues
    from broker_shim.listener_1_0.connections import links  # noqa: PLC0415

    later_ms = links.now_ms() + 60_001
    monkeypatch.setattr(links, "now_ms", lambda: later_ms)
    kept.run_delayed()
    assert queue not in kept.broker.queues
    assert len(kept.registry) == 0


def left_elsewhere(house: House, timeout_s: int) -> LinkKey:
    """A subscription whose link another broker had, which is gone."""
    Client(house).attach("news", source=Source("news.eu", 1, "link-detach", timeout_s))
    (key,) = house.registry._termini
    terms = house.registry._termini[key].terms
    assert terms is not None
    house.host.links.moved(link_text(key))
    assert len(house.registry) == 0
    house.host.links.left_elsewhere(link_text(key), KeptLink(terms.as_json(), {}, []))
    house.run()
    return key


def test_the_time_of_a_link_runs_here_when_the_broker_that_had_it_is_gone(
    kept: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    from broker_shim.listener_1_0.connections import links  # noqa: PLC0415

    key = left_elsewhere(kept, 60)
    assert any(59 < delay_s <= 60 for delay_s, _expire in kept.delayed)
    later_ms = links.now_ms() + 60_001
    monkeypatch.setattr(links, "now_ms", lambda: later_ms)
    kept.host.links.attached_elsewhere(link_text(key))
    kept.run_delayed()
    assert "news.eu::subscription.client.news" in kept.broker.queues, "another broker has it"


@pytest.mark.parametrize("timeout_s", [0, 60])
def test_it_is_over_when_nobody_asks_for_it_in_time(
    kept: House, monkeypatch: pytest.MonkeyPatch, timeout_s: int
) -> None:
    from broker_shim.listener_1_0.connections import links  # noqa: PLC0415

    left_elsewhere(kept, timeout_s)
    if timeout_s:
        later_ms = links.now_ms() + 60_001
        monkeypatch.setattr(links, "now_ms", lambda: later_ms)
        kept.run_delayed()
    assert "news.eu::subscription.client.news" not in kept.broker.queues
    assert len(kept.registry) == 0
    assert len(kept.restarted().registry) == 0


def test_a_subscription_that_its_client_closes_is_gone(kept: House) -> None:
    client = Client(kept)
    client.attach("news", source=subscription())
    assert client.detach(closed=True).closed
    assert "news.eu::subscription.client.news" not in kept.broker.queues
    again = kept.restarted()
    assert len(again.registry) == 0
    assert again.store.recover().links == {}


def test_a_durable_subscription_gets_what_came_while_its_client_was_away(kept: House) -> None:
    client = Client(kept)
    answer = client.attach("news", source=subscription())
    assert (answer.source.durable, answer.source.expiry_policy) == (2, "never")
    client.detach()
    publish(kept, "news.eu", "a", "b")
    again = kept.restarted()
    publish(again, "news.eu", "c")
    back = Client(again)
    back.attach("news", source=subscription())
    back.credit(10)
    assert bodies(back) == ["a", "b", "c"]


def test_a_durable_subscription_on_an_exchange_likewise(kept: House) -> None:
    client = Client(kept)
    client.attach("news", source=subscription("amq.topic/sport.#"))
    client.vanish()
    again = kept.restarted()
    publish(again, "amq.topic/sport.ski", "a")
    publish(again, "amq.topic/music", "b")
    back = Client(again)
    back.attach("news", source=subscription("amq.topic/sport.#"))
    back.credit(10)
    assert bodies(back) == ["a"]


def test_the_selector_of_a_durable_subscription_survives(kept: House) -> None:
    client = Client(kept)
    client.attach("news", source=subscription(selector="JMSPriority > 4"))
    again = kept.restarted()
    only = again.broker.queues["news.eu::subscription.client.news"].only
    assert only is not None
    publish(again, "news.eu", "of priority 4")
    back = Client(again)
    answer = back.attach("news", source=subscription(selector="JMSPriority > 4"))
    assert list(answer.source.filter) == ["jms-selector"]
    back.credit(10)
    assert bodies(back) == []


@pytest.mark.parametrize(
    "other", [subscription(selector="a = 1"), subscription("news.us"), subscription("amq.fanout")]
)
def test_a_subscription_with_another_selector_or_topic_is_a_new_one(
    kept: House, other: Source
) -> None:
    client = Client(kept)
    client.attach("news", source=subscription())
    client.detach()
    publish(kept, "news.eu", "old")
    client.attach("news", 1, source=other)
    client.credit(10, 1)
    assert bodies(client) == []
    assert len(kept.registry) == 1
    names = [name for name in kept.broker.queues if "subscription" in name]
    assert len(names) == 1


def test_a_receiver_without_a_source_looks_up_its_subscription_and_ends_it(kept: House) -> None:
    client = Client(kept)
    client.attach("news", source=subscription())
    client.detach()
    found = client.attach("news", 1, source=None)
    assert (found.source.address, found.source.durable) == ("news.eu", 2)
    client.detach(1)
    assert client.attach("news", 2, source=None).source is not None
    assert client.detach(2, closed=True).error is None
    nothing = client.attach("news", 3, source=None)
    assert nothing.source is None
    assert client.take(Detach).error.condition == "amqp:not-found"
    assert len(kept.restarted().registry) == 0


def test_a_subscription_in_use_is_not_ended_by_a_look_up(kept: House) -> None:
    client = Client(kept)
    client.attach("news", source=subscription())
    client.attach("news", 1, source=None)
    refused = client.detach(1, closed=True)
    assert refused.error.condition == LOCKED
    publish(kept, "news.eu", "a")
    client.credit(10)
    assert bodies(client) == ["a"]


def test_a_durable_subscription_needs_a_topic(kept: House) -> None:
    client = Client(kept)
    client.attach("in", source=Source("q"))
    assert client.attach("news", 1, source=subscription("q")).source is None
    error = client.take(Detach).error
    assert error.condition == "amqp:not-found"
    assert "'q' is a queue, no topic" in error.description


def shared(**fields: Any) -> Source:
    return subscription(capabilities=("topic", "shared"), **fields)


def test_consumers_share_a_durable_subscription_and_what_one_lost_the_other_gets(
    kept: House,
) -> None:
    first = Client(kept, "app")
    assert first.attach("s", 0, source=shared()).source.durable == 1
    assert first.attach("s|2", 1, source=shared()).source.durable == 1
    first.credit(1, 0)
    first.credit(1, 1)
    publish(kept, "news.eu", "a", "b", "c")
    assert sorted(bodies(first)) == ["a", "b"]
    first.detach(1)
    again = kept.restarted()
    back = Client(again, "app")
    back.attach("s", source=shared())
    back.credit(10)
    assert bodies(back) == ["a", "b", "c"]


def test_a_durable_shared_subscription_is_granted_that_it_never_expires(kept: House) -> None:
    source = Source("news.eu", 1, "session-end", 5, capabilities=("topic", "shared"))
    client = Client(kept, "app")
    answer = client.attach("s", source=source).source
    assert (answer.durable, answer.expiry_policy, answer.timeout) == (1, "never", 0)
    client.vanish()
    publish(kept, "news.eu", "a")
    back = Client(kept.restarted(), "app")
    back.attach("s", source=source)
    back.credit(1)
    assert bodies(back) == ["a"]


def test_a_global_subscription_is_everybodys(kept: House) -> None:
    source = subscription(capabilities=("topic", "shared", "global"))
    first, second = Client(kept, "x"), Client(kept, "y")
    first.attach("s|global", source=source)
    second.attach("s|global", source=source)
    assert first.taken(Detach) == []
    first.vanish()
    second.vanish()
    again = kept.restarted()
    publish(again, "news.eu", "a")
    third = Client(again, "z")
    third.attach("s|global", source=source)
    third.credit(1)
    assert bodies(third) == ["a"]
    wanted = (Symbol("shared"), Symbol("global"))
    third.attach("s|global", 1, source=None, desired_capabilities=wanted)
    assert third.detach(1, closed=True).error.condition == LOCKED
    third.detach(0)
    third.attach("s|global", 2, source=None, desired_capabilities=wanted)
    assert third.detach(2, closed=True).error is None
    assert [name for name in again.broker.queues if "subscription" in name] == []


def test_a_volatile_shared_subscription_ends_with_its_last_consumer(kept: House) -> None:
    source = Source("news.eu", expiry_policy="link-detach", capabilities=("topic", "shared"))
    client = Client(kept, "app")
    client.attach("s|volatile1", 0, source=source)
    client.attach("s|volatile2", 1, source=source)
    publish(kept, "news.eu", "a", "b")
    client.credit(1, 0)
    client.credit(1, 1)
    assert sorted(bodies(client)) == ["a", "b"]
    client.detach(0, closed=True)
    assert [name for name in kept.broker.queues if "subscription" in name] != []
    client.detach(1, closed=True)
    assert [name for name in kept.broker.queues if "subscription" in name] == []


def test_a_shared_subscription_in_use_is_not_changed(kept: House) -> None:
    client = Client(kept, "app")
    client.attach("s", source=shared())
    assert client.attach("s|2", 1, source=shared(selector="a = 1")).source is None
    assert client.take(Detach).error.condition == LOCKED


def test_a_dynamic_queue_lives_as_long_as_its_terminus(kept: House) -> None:
    client = Client(kept)
    address = client.attach("in", source=Source(None, dynamic=True)).source.address
    assert address in kept.broker.queues
    client.detach()
    assert address in kept.broker.queues
    same = client.attach("in", 1, source=Source(None, dynamic=True)).source.address
    assert same == address
    client.detach(1, closed=True)
    assert address not in kept.broker.queues


def test_a_delivery_that_was_not_settled_stays_with_its_link_over_a_crash(kept: House) -> None:
    publish(kept, "q", "a", "b")
    client = Client(kept)
    client.attach("in", source=durable())
    client.credit(1)
    ((tag, _body),) = client.transfers()
    again = kept.restarted()
    other = Client(again, "other")
    other.attach("in", source=Source("q"))
    other.credit(10)
    assert bodies(other) == ["b"]
    back = Client(again)
    answer = back.attach("in", source=durable(), unsettled={tag: None})
    assert answer.unsettled == {tag: None}
    back.credit(10)
    ((transfer, _payload),) = back.taken(Transfer)
    assert (transfer.delivery_tag, transfer.resume) == (tag, True)
    back.dispose(transfer.delivery_id, Accepted())
    assert len(again.store.recover().entries["q"]) == 1


@pytest.mark.parametrize("crashes", [True, False])
def test_an_outcome_that_we_never_heard_is_taken_from_the_map(
    kept: House, *, crashes: bool
) -> None:
    publish(kept, "q", "a")
    client = Client(kept)
    client.attach("in", source=durable(), rcv_settle_mode=1)
    client.credit(1)
    ((tag, _body),) = client.transfers()
    client.vanish()
    house = kept.restarted() if crashes else kept
    back = Client(house)
    answer = back.attach("in", source=durable(), unsettled={tag: Accepted()}, rcv_settle_mode=1)
    assert answer.unsettled == {tag: None}
    ((transfer, payload),) = back.taken(Transfer)
    assert (transfer.resume, transfer.state, payload) == (True, Accepted(), b"")
    disposition = back.take(Disposition)
    assert (disposition.settled, disposition.state) == (True, Accepted())
    assert not house.store.recover().entries["q"]


@pytest.mark.parametrize(
    ("outcome", "count"), [(Released(), 0), (Modified(delivery_failed=True), 1)]
)
def test_a_release_from_the_map_makes_the_message_available(
    kept: House, outcome: Any, count: int
) -> None:
    publish(kept, "q", "a")
    client = Client(kept)
    client.attach("in", source=durable())
    client.credit(1)
    ((tag, _body),) = client.transfers()
    client.vanish()
    back = Client(kept)
    back.attach("in", source=durable(), unsettled={tag: outcome})
    (entry,) = kept.store.recover().entries["q"].values()
    assert (entry.acquired_by, entry.delivery_count) == (None, count)


def test_what_the_receiver_has_no_trace_of_is_sent_again_as_a_failed_delivery(kept: House) -> None:
    publish(kept, "q", "a", "b")
    client = Client(kept)
    client.attach("in", source=durable())
    client.credit(2)
    assert bodies(client) == ["a", "b"]
    back = Client(kept.restarted())
    answer = back.attach("in", source=durable())
    assert not answer.unsettled
    back.credit(10)
    transfers = back.taken(Transfer)
    assert [transfer.resume for transfer, _payload in transfers] == [False, False]
    entries = back.house.store.recover().entries["q"].values()
    assert [entry.delivery_count for entry in entries] == [1, 1]


def test_a_stolen_link_hands_its_deliveries_to_the_thief(kept: House) -> None:
    publish(kept, "q", "a")
    first, thief = Client(kept), Client(kept)
    first.attach("in", source=durable())
    first.credit(1)
    ((tag, _body),) = first.transfers()
    thief.attach("in", source=durable(), unsettled={tag: None})
    thief.credit(1)
    assert thief.transfers() == [(tag, "a")]
    assert first.take(Detach).error.condition == STOLEN


def test_closing_a_link_gives_back_what_it_held(kept: House) -> None:
    publish(kept, "q", "a")
    client = Client(kept)
    client.attach("in", source=durable())
    client.credit(1)
    assert bodies(client) == ["a"]
    client.detach(closed=True)
    other = Client(kept, "other")
    other.attach("in", source=Source("q"))
    other.credit(1)
    assert bodies(other) == ["a"]


def test_links_of_ever_new_names_are_refused_beyond_a_limit(kept: House) -> None:
    house = House(kept.place, BrokerSettings(max_termini=3))
    client = Client(house)
    for number in range(3):
        assert client.attach(f"in {number}", source=durable()).source is not None
        client.detach()
    assert client.attach("one too many", source=durable()).source is None
    assert client.take(Detach).error.condition == "amqp:resource-limit-exceeded"
    client.send(Detach(0, closed=True))
    assert client.attach("in 0", source=durable()).source is not None
    client.detach(closed=True)
    assert client.attach("a place is free", source=durable()).source is not None


def test_what_a_link_held_of_a_queue_that_was_destroyed_is_forgotten(kept: House) -> None:
    publish(kept, "q", "a")
    client = Client(kept)
    client.attach("in", source=durable())
    client.credit(1)
    ((tag, _body),) = client.transfers()
    client.vanish()
    kept.broker.destroy_queue("q")
    kept.run()
    back = Client(kept)
    assert not back.attach("in", source=durable(), unsettled={tag: None}).unsettled
    publish(kept, "q", "b")
    back.credit(10)
    assert bodies(back) == ["b"]


def target() -> Target:
    return Target("q", durable=2, expiry_policy="never")


def test_a_delivery_that_was_stored_is_known_as_stored_after_a_crash(kept: House) -> None:
    client = Client(kept)
    client.attach("out", target=target(), is_receiver=False)
    client.deliver(b"1", "a")
    again = kept.restarted()
    back = Client(again)
    answer = back.attach(
        "out", target=target(), is_receiver=False, unsettled={b"1": None, b"2": None}
    )
    assert answer.unsettled == {b"1": Accepted()}
    back.send_free(b"1", resume=True, settled=True, state=Accepted())
    back.deliver(b"2", "b")
    assert len(again.store.recover().entries["q"]) == 2


def test_a_stored_delivery_that_is_sent_again_whole_is_stored_once(kept: House) -> None:
    client = Client(kept)
    client.attach("out", target=target(), is_receiver=False)
    client.deliver(b"1", "a")
    client.vanish()
    back = Client(kept)
    back.attach("out", target=target(), is_receiver=False, unsettled={b"1": None})
    back.deliver(b"1", "a", resume=True)
    disposition = back.take(Disposition)
    assert (disposition.settled, disposition.state) == (True, Accepted())
    assert len(kept.store.recover().entries["q"]) == 1


def test_what_the_sender_names_no_more_is_forgotten(kept: House) -> None:
    client = Client(kept)
    client.attach("out", target=target(), is_receiver=False)
    for number in range(5):
        client.deliver(b"%d" % number, "x")
    client.vanish()
    assert len(kept.store.recover().unsettled[KEY]) == 5
    back = Client(kept)
    back.attach("out", target=target(), is_receiver=False, unsettled={b"3": None})
    assert kept.store.recover().unsettled[KEY].keys() == {b"3"}


def test_in_mode_second_the_sender_settles_and_only_then_it_is_forgotten(kept: House) -> None:
    client = Client(kept)
    answer = client.attach("out", target=target(), is_receiver=False, rcv_settle_mode=1)
    assert answer.rcv_settle_mode == 1
    number = client.deliver(b"1", "a")
    disposition = client.take(Disposition)
    assert (disposition.settled, disposition.state) == (False, Accepted())
    assert kept.store.recover().unsettled[KEY].keys() == {b"1"}
    client.dispose(number, Accepted(), as_sender=True)
    assert not kept.store.recover().unsettled.get(KEY)


def test_answers_that_were_read_are_forgotten_while_the_link_goes_on(kept: House) -> None:
    small = BrokerSettings(credit=4)
    house = House(kept.place, small)
    client = Client(house)
    client.attach("out", target=target(), is_receiver=False)
    for number in range(100):
        client.deliver(b"%d" % number, "x")
        remembered = house.store.recover().unsettled[KEY]
        assert b"%d" % number in remembered
        assert len(remembered) <= 2 * small.credit
    assert len(house.store.recover().entries["q"]) == 100


def test_what_is_under_way_to_the_store_is_waited_for_before_an_attach_is_answered(
    kept: House,
) -> None:
    client = Client(kept)
    client.attach("out", target=target(), is_receiver=False)
    with kept.store_that_does_not_answer():
        client.deliver(b"1", "a")
        second = Client(kept)
        told = {"target": target(), "source": Source(), "initial_delivery_count": 0}
        second.send(Attach("out", 0, role=False, unsettled={b"1": None}, **told))
        assert second.taken(Attach) == []
    assert second.take(Attach).unsettled == {b"1": Accepted()}


@pytest.mark.parametrize("left", [0, 1])
@pytest.mark.parametrize("mode", ["move", "copy"])
@pytest.mark.parametrize(("credit", "seen"), [(2, 0), (0, 2), (2, 2)])
def test_a_drain_is_answered_whatever_credit_is_left(
    house: House, mode: str, credit: int, seen: int, left: int
) -> None:
    """AMQP 2.6.7: by a flow with the credit used up, also if all of it is used already."""
    publish_to = Client(house, "p")
    publish_to.attach("out", target=Target("q"), is_receiver=False)
    for number in range(2 + left):
        publish_to.deliver(b"%d" % number, str(number))
    client = Client(house)
    client.attach("in", source=Source("q", distribution_mode=mode))
    client.credit(2)
    assert bodies(client) == ["0", "1"]
    client.taken(Flow)
    client.send(Flow(0, 2048, 0, 2048, 0, seen, credit, drain=True))
    expected = min(left, credit - 2 + seen)
    assert bodies(client) == ["2"] * expected
    (answer,) = (told for told, _payload in client.taken(Flow) if told.handle is not None)
    assert (answer.drain, answer.link_credit) == (True, 0)
    assert answer.delivery_count == max(2, seen + credit)


def test_a_drain_that_its_messages_use_up_is_answered(house: House) -> None:
    publish_to = Client(house, "p")
    publish_to.attach("out", target=Target("q"), is_receiver=False)
    for number in range(3):
        publish_to.deliver(b"%d" % number, str(number))
    for mode in ("copy", "move"):
        client = Client(house, mode)
        client.attach("in", source=Source("q", distribution_mode=mode))
        client.send(Flow(0, 2048, 0, 2048, 0, 0, 3, drain=True))
        assert bodies(client) == ["0", "1", "2"]
        (answer,) = (told for told, _payload in client.taken(Flow) if told.handle is not None)
        assert (answer.drain, answer.link_credit, answer.delivery_count) == (True, 0, 3)
