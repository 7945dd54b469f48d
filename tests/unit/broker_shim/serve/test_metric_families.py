"""What a monitor is shown: every counter with its help, and each queue as it is now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.core import Metric

from broker_shim.amqp_1_0.composites import Modified, Source, Target
from broker_shim.broker.metrics import Metrics
from broker_shim.serve import metric_families
from broker_shim.serve.metric_families import (
    ProcessRole,
    broker_families,
    log_families,
    service_families,
)
from broker_shim.serve.stores import trouble_of
from broker_shim.service.service_metrics import ServiceMetrics
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import MessageHeader, Queue
from sparkstore import __version__
from sparkstore.errors import Unavailable
from sparkstore.log.log_metrics import LogMetrics
from sparkstore.metrics.counters import counters_of
from sparkstore.metrics.exposition import counters, encoded
from sparkstore.metrics.histograms import histograms_of
from tests.support.amqp.link_clients import Client, House, Place
from tests.support.stores.raw_member import RawMember, create, enqueue
from tests.support.stores.services import served
from tests.support.stores.stores import DELTA_CONFIG, done


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    it = House(Place("recorded", tmp_path))
    yield it
    it.close()


def figures(families: Iterable[Metric]) -> dict[tuple[str, str], float]:
    """By name without `sparkstore_`, and queue."""
    return {
        (sample.name.removeprefix("sparkstore_"), sample.labels.get("queue", "")): sample.value
        for family in families
        for sample in family.samples
    }


def of_house(house: House) -> dict[tuple[str, str], float]:
    return figures(broker_families(house.broker, house.store, 2))


@pytest.mark.parametrize("counts", [Metrics(), ServiceMetrics(), LogMetrics()])
def test_every_number_is_shown_with_a_sentence_of_help(counts: Any) -> None:
    shown = counters_of(counts)
    numbers = {each.name for each in fields(counts) if isinstance(getattr(counts, each.name), int)}
    assert numbers <= {each.name for each in shown}
    assert all(each.help.endswith(".") for each in shown)
    text = encoded(counters("sparkstore_x", counts)).decode()
    metrics = {each.metric for each in shown} | {each.name for each in histograms_of(counts)}
    assert text.count("# HELP ") == len(metrics)


def test_a_queue_is_shown_as_it_is(house: House) -> None:
    sender = Client(house, "sender")
    sender.attach("out", target=Target("q"), is_receiver=False)
    for number in range(3):
        sender.deliver(b"%d" % number, "x" * 100)
    receiver = Client(house, "receiver")
    receiver.attach("in", source=Source("q"))
    receiver.credit(1)
    found = of_house(house)
    assert found["queue_messages", "q"] == 3
    assert found["queue_messages_held", "q"] == 1
    assert found["queue_consumers", "q"] == 1
    assert found["queue_bytes", "q"] > 300
    assert found["queue_oldest_age_seconds", "q"] > 0
    assert found["queue_redelivered_total", "q"] == 0
    assert found["broker_enqueued_total", ""] == 3
    assert found["broker_open_connections", ""] == 2


def test_a_failed_delivery_counts_for_its_queue(house: House) -> None:
    client = Client(house)
    client.attach("out", target=Target("q"), is_receiver=False)
    client.deliver(b"1", "x")
    client.attach("in", 1, source=Source("q"))
    client.credit(1, 1)
    client.dispose(0, Modified(delivery_failed=True))
    assert of_house(house)["queue_redelivered_total", "q"] == 1


def test_an_empty_queue_has_no_age_and_no_bytes(house: House) -> None:
    house.broker.create_queue(Queue("idle"), lambda _error: None)
    house.run()
    found = of_house(house)
    assert found["queue_oldest_age_seconds", "idle"] == found["queue_bytes", "idle"] == 0


def test_so_many_queues_have_labels_and_all_others_share_one(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever they are called: a queue of the shared name is one of the others."""
    monkeypatch.setattr(metric_families, "MOST_QUEUES", 2)
    client = Client(house)
    for handle, name in enumerate(("one", metric_families.OTHERS, "two", "three")):
        client.attach(f"to {name}", handle, target=Target(name), is_receiver=False)
        client.deliver(b"%d" % handle, "x", handle)
    found = of_house(house)
    depths = {queue: n for (name, queue), n in found.items() if name == "queue_messages"}
    assert depths == {"one": 1, "two": 1, metric_families.OTHERS: 2}
    assert found["broker_queues", ""] == 4


def test_reply_queues_are_shown_as_one(house: House) -> None:
    client = Client(house)
    for handle in range(3):
        client.attach(f"r{handle}", handle, source=Source(dynamic=True))
    found = of_house(house)
    assert {queue for _name, queue in found} == {"", "temporary"}
    assert found["queue_consumers", "temporary"] == 3


def test_each_process_says_what_it_is_and_a_member_shows_no_queue(house: House) -> None:
    """The sum over a service and its members counts each message once."""
    client = Client(house)
    client.attach("out", target=Target("q"), is_receiver=False)
    client.deliver(b"1", "x")
    for role, member in (
        (ProcessRole.BROKER, ""),
        (ProcessRole.SERVICE, ""),
        (ProcessRole.MEMBER, "one"),
    ):
        families = broker_families(house.broker, house.store, 2, role, member)
        (info,) = [each for each in families if each.name == "sparkstore"]
        labels = {"version": __version__, "role": role.value, "member": member}
        assert [(each.name, each.labels) for each in info.samples] == [("sparkstore_info", labels)]
        queues = {each.name for each in families if each.name.startswith("sparkstore_queue")}
        assert bool(queues) is (role is not ProcessRole.MEMBER)
        assert "sparkstore_broker_enqueued" in {each.name for each in families}


def test_a_service_shows_the_queues_of_its_members(tmp_path: Path) -> None:
    with served(tmp_path / "root") as there, RawMember(there.path) as member:
        member.hello()
        assert member.ask(1, create()) == []
        assert member.ask(2, enqueue(member.ids(1), body=b"x" * 100)) == []
        found = figures(service_families(there.service, None))
        assert found["queue_messages", "q"] == 1
        assert found["queue_bytes", "q"] >= 100
        assert found["queue_messages_held", "q"] == found["queue_consumers", "q"] == 0
        assert found["service_requests_total", ""] == 2
    after = figures(service_families(there.service, None))
    assert ("queue_messages", "q") not in after
    assert after["service_requests_total", ""] == 2


def test_the_log_tells_what_waits_and_whether_it_takes_more(tmp_path: Path) -> None:
    store = DeltaMessageStore(tmp_path / "root", DELTA_CONFIG)
    done(store.create, Queue("q"))
    done(store.enqueue, store.message(MessageHeader(), b"x" * 100), "q")
    found = figures(log_families(store))
    assert found["log_records_total", ""] >= 2
    assert found["log_unsynced_bytes", ""] == 0
    assert found["log_wal_files", ""] >= 1
    assert (found["log_failed", ""], trouble_of(store)) == (0, None)
    done(store.flush)
    assert figures(log_families(store))["log_uncommitted_bytes", ""] == 0
    store._log.fail(Unavailable("the disk is gone"))
    assert figures(log_families(store))["log_failed", ""] == 1
    assert trouble_of(store) == "the disk is gone"
    store.close()


def test_a_primary_tells_whether_a_standby_is_in_step(tmp_path: Path) -> None:
    config = replace(DELTA_CONFIG, standby_listen="127.0.0.1:0")
    store = DeltaMessageStore(tmp_path / "paired", config)
    shown = figures(log_families(store))
    store.close()
    assert [shown[f"log_standby_{name}", ""] for name in ("in_step", "lag_records")] == [0, 0]


def test_times_are_in_seconds_and_their_names_say_so(house: House, tmp_path: Path) -> None:
    """As Prometheus has units: the base unit, written out, at the end of the name."""
    (tmp_path / "witness").mkdir()
    config = replace(DELTA_CONFIG, witness=str(tmp_path / "witness"))
    store = DeltaMessageStore(tmp_path / "witnessed", config)
    families = [*log_families(store), *broker_families(house.broker, house.store, 2)]
    store.close()
    names = {family.name for family in families}
    assert {"sparkstore_log_witness_left_seconds", "sparkstore_log_unshipped_age_seconds"} <= names
    assert not [name for name in names if name.rpartition("_")[2] in {"s", "ms", "us", "kb", "mb"}]
