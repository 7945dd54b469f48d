"""Reads of tables over HTTP: few at once, for a limited time, and no probe waits for them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from broker_shim.serve.http import table_reads
from broker_shim.store.delta import DeltaMessageStore
from sparkstore.recovery import operation_log
from tests.support.roots.logs import until
from tests.support.stores.http_houses import HttpHouse
from tests.support.stores.stores import DELTA_CONFIG

ASKERS = 24
PATH = "/api/v1/operations"


@pytest.fixture
def house(tmp_path: Path) -> Iterator[HttpHouse]:
    store = DeltaMessageStore(tmp_path / "root", DELTA_CONFIG)
    house = HttpHouse(tmp_path, store=store)
    yield house
    house.stop()


class SlowTables:
    """Tables whose reads take until they may end."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.may_end, self.most, self.now, self._lock = threading.Event(), 0, 0, threading.Lock()
        monkeypatch.setattr(operation_log, "operations", self)

    def __call__(self, _root: object) -> list[object]:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
        assert self.may_end.wait(60)
        with self._lock:
            self.now -= 1
        return []


def test_probes_answer_while_many_ask_for_tables_of_which_few_are_read_at_once(
    house: HttpHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = SlowTables(monkeypatch)
    monkeypatch.setattr(table_reads, "PATIENCE_S", 0.0)
    with ThreadPoolExecutor(ASKERS) as askers:
        replies = [askers.submit(house.ask, "GET", PATH) for _ in range(ASKERS)]
        until(lambda: sum(each.done() for each in replies) == ASKERS - table_reads.MOST_AT_ONCE)
        until(lambda: slow.most == table_reads.MOST_AT_ONCE)
        assert [house.ask("GET", path).status for path in ("/healthz", "/readyz")] == [200, 200]
        slow.may_end.set()
    statuses = sorted(each.result().status for each in replies)
    assert statuses == [200] * table_reads.MOST_AT_ONCE + [429] * (ASKERS - 2)
    assert slow.most == table_reads.MOST_AT_ONCE
    assert house.ask("GET", PATH).status == 200  # and the places are free again


def test_a_read_that_takes_too_long_is_answered_and_keeps_its_place_until_it_ends(
    house: HttpHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = SlowTables(monkeypatch)
    monkeypatch.setattr(table_reads, "PATIENCE_S", 0.0)
    monkeypatch.setattr(table_reads, "MOST_S", 0.01)
    replies = [house.ask("GET", PATH) for _ in range(table_reads.MOST_AT_ONCE + 1)]
    assert [each.status for each in replies] == [503, 503, 429]
    assert "takes longer than" in replies[0].body["error"]
    slow.may_end.set()
    until(lambda: house.ask("GET", PATH).status in {200, 503})
