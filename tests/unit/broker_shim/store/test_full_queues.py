"""What full queues refuse is counted, and logged once a minute for each queue."""

from __future__ import annotations

import logging
from contextlib import closing
from pathlib import Path

import pytest

from broker_shim.durability import TerminusDurability
from broker_shim.errors import Full
from broker_shim.serve.metric_families import log_families
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.full_queues import FullQueues
from broker_shim.store.interface import MessageHeader, Queue
from sparkstore.core.fold import State
from sparkstore.core.state_machine.state_machine import StoreStateMachine
from tests.support.stores.stores import DELTA_CONFIG, RecordedMessageStore, done


def test_a_queue_has_a_line_a_minute_which_says_how_many(
    caplog: pytest.LogCaptureFixture,
) -> None:
    times_s = iter([0.0, 1.0, 2.0, 61.0, 61.0])
    machine = StoreStateMachine(State(), TerminusDurability.UNSETTLED_STATE, lambda: 0)
    queues = FullQueues(machine, lambda: next(times_s))
    with caplog.at_level(logging.WARNING):
        for name in ("a", "a", "b", "a", "a"):
            machine.on_full(name)
    assert [each.getMessage().partition(" is full")[0] for each in caplog.records] == [
        *("queue 'a'", "queue 'b'", "queue 'a'")
    ]
    assert "refused, 2 messages since" in caplog.records[-1].getMessage()
    assert (queues.total, queues.counts) == (5, {"a": 4, "b": 1})


def test_what_was_refused_is_a_metric_of_its_queue(tmp_path: Path) -> None:
    with closing(DeltaMessageStore(tmp_path / "root", DELTA_CONFIG)) as store:
        done(store.create, Queue("q", arguments={"max_depth": 1}))
        done(store.enqueue, store.message(MessageHeader(), b"x"), "q")
        for _ in range(2):
            with pytest.raises(Full):
                done(store.enqueue, store.message(MessageHeader(), b"x"), "q")
        found = {
            sample.name: (sample.labels, sample.value)
            for family in log_families(store)
            for sample in family.samples
        }
        refused = {"queue": "q", "reason": "full"}, 2.0
        assert found["sparkstore_queue_refused_total"] == refused


def test_a_value_is_asked_for_where_a_queue_may_be_full_and_nowhere_else() -> None:
    asked: list[str] = []

    def last_value(queue: str, key: str, _header: MessageHeader) -> tuple[str, None]:
        asked.append(queue)
        return f"the {key}", None

    with closing(RecordedMessageStore([])) as store:
        store.full_queues.replace_by(last_value)
        kept = {"last_value_key": "key"}
        done(store.create, Queue("brief", arguments={**kept, "message_ttl_ms": 60_000}))
        done(store.create, Queue("short", arguments={**kept, "max_depth": 1}))
        for name in ("brief", "short", "short"):
            done(store.enqueue, store.message(MessageHeader(), b"x"), name)
        assert asked == ["short", "short"]
        entries = store.recover().entries
        assert ([*entries["brief"]], [*entries["short"]]) == ([1], [3])
