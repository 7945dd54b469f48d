"""Qpid JMS: selectors, priorities, groups, last values, exclusive consumers, time to live."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.system import brokerj
from tests.support.system.clients import is_empty
from tests.support.system.processes import BrokerProcess

pytestmark = [pytest.mark.system, pytest.mark.slow]
if reason := brokerj.missing():
    pytestmark.append(pytest.mark.skip(reason=reason))

SETTINGS = """[broker]
queues = [
  {name = "groups", arguments = {message_groups = true}},
  {name = "values", arguments = {last_value_key = "key"}},
  {name = "alone", arguments = {exclusive = true}},
]
"""
SELECTED = {
    "n BETWEEN 2 AND 4 OR n = 8": [2, 8, 4, 3],
    "even AND weight >= 3": [8, 6],
    "big > 70000000000": [8, 9],
    "half = 0.5 AND b + s = 2": [1],
    "region = 'EU' AND JMSPriority = 0": [0, 6],
    "JMSDeliveryMode = 'NON_PERSISTENT' AND region LIKE 'U_'": [5, 7, 9],
    "JMSType = 'order' AND JMSCorrelationID IN ('c1', 'c2')": [2, 1],
    "JMSTimestamp > 1500000000000 AND n < 1": [0],
    "missing IS NULL AND NOT (n > 0)": [0],
    "region = '7' OR missing <> 1": [],
}
"""Selectors, and which of ten messages they fit, in the order of priorities (n % 3)."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    brokerj.build()
    settings = tmp_path_factory.mktemp("selecting") / "sparkstore.toml"
    settings.write_text(SETTINGS)
    started = BrokerProcess("--listen", "127.0.0.1:0", "--memory", "--config", str(settings))
    yield started
    started.terminate()


def jms(broker: BrokerProcess, *arguments: str) -> dict[str, Any]:
    """What the client found."""
    done = subprocess.run(
        brokerj.java("sparkstore.brokerj.system.JmsSelecting", str(broker.port), *arguments),
        capture_output=True,
        text=True,
        timeout=brokerj.CLIENT_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stderr}\n{broker.log}"
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def texts(numbers: list[int]) -> list[str]:
    return [f"m{number}" for number in numbers]


def test_selectors_of_browsers_and_consumers(broker: BrokerProcess) -> None:
    found = jms(broker, "select", "orders", *SELECTED)
    assert found.pop("by id") == ["m7"]
    assert found.pop("consumed") == texts(next(iter(SELECTED.values())))
    assert sorted(found.pop("left")) == texts([0, 1, 5, 6, 7, 9])
    assert found.pop("refused") == "InvalidSelectorException"
    assert found == {selector: texts(numbers) for selector, numbers in SELECTED.items()}


def test_a_selector_of_a_subscription_to_a_topic(broker: BrokerProcess) -> None:
    found = jms(broker, "subscribe", "amq.topic/news", "n >= 7 AND region = 'US'")
    assert found["consumed"] == texts([7, 9])


def test_priorities_order_what_is_browsed_selected_and_received(broker: BrokerProcess) -> None:
    assert jms(broker, "prioritise", "urgent") == {
        "browsed": ["p9", "p7", "p4", "p4", "p0"],
        "selected": ["p9", "p7", "p4", "p4"],
        "rest": ["p0"],
    }


def test_a_group_goes_to_one_consumer_in_order_and_to_another_when_that_is_gone(
    broker: BrokerProcess,
) -> None:
    found = jms(broker, "group", "groups")
    groups = [{text[0] for text in found[who]} for who in ("one", "two")]
    assert groups[0].isdisjoint(groups[1])
    assert groups[0] | groups[1] == set("0123")
    for who in ("one", "two", "after"):
        for group in "0123":
            numbers = [int(text[2:]) for text in found[who] if text[0] == group]
            assert numbers == sorted(numbers)
    assert len(found["one"]) + len(found["two"]) == 20
    assert sorted(int(text[2:]) for text in found["after"]) == list(range(20, 40))


def test_the_last_value_of_each_key_is_what_is_there(broker: BrokerProcess) -> None:
    assert jms(broker, "replace", "values") == {
        "browsed": ["v6", "v7", "v8"],
        "consumed": ["v6", "v7", "v8"],
    }


def test_an_exclusive_queue_has_one_consumer(broker: BrokerProcess) -> None:
    found = jms(broker, "exclude", "alone")
    assert "'alone' is exclusive" in found["refused"]
    assert "amqp:resource-locked" in found["refused"]
    assert found["browsed"] == []


def test_a_delivery_delay_of_jms_is_kept_and_told(broker: BrokerProcess) -> None:
    found = jms(broker, "delay", "delayed")
    assert found == {"consumed": ["now", "late"], "in time": True, "told": True}


def test_what_expired_is_not_selected(broker: BrokerProcess) -> None:
    assert jms(broker, "expire", "short") == {"consumed": ["long"]}
    assert is_empty(broker.url, "short")
