"""How the broker is, over HTTP: figures of now, and what is wrong with what to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import jsonschema
import pytest

from broker_shim.store.delta import DeltaMessageStore
from sparkstore.jobs.job_runs import JobRun, record
from tests.support.stores.http_houses import HttpHouse
from tests.support.stores.stores import DELTA_CONFIG

pytestmark = pytest.mark.slow

OVERVIEW = "/api/v1/overview"


@pytest.fixture
def house(tmp_path: Path) -> Iterator[HttpHouse]:
    users = {"mia": ("monitor",), "nora": ("shop",)}
    slow = replace(DELTA_CONFIG, commit_interval_ms=10_000)
    it = HttpHouse(tmp_path, users, store=DeltaMessageStore(tmp_path / "root", slow))
    it.put_queue("orders")
    it.put("orders", b"eggs", b"bread")
    yield it
    it.stop()


def test_figures_are_of_now_and_as_openapi_says(house: HttpHouse) -> None:
    reply = house.ask("GET", OVERVIEW, "mia")
    assert reply.status == 200, reply.body
    found = reply.body
    assert (found["queues"], found["messages"], found["oldest_queue"]) == (1, 2, "orders")
    assert found["sync_p50_ms"] <= found["sync_p99_ms"]
    assert found["memory_bytes"] > 1 << 20
    (disk,) = found["disks"]
    assert disk["least_free_bytes"] < disk["total_bytes"]
    document = house.ask("GET", "/api/v1/openapi.json", "mia").body
    told = document["paths"][OVERVIEW]["get"]["responses"]["200"]["content"]["application/json"]
    schema = {**told["schema"], "components": document["components"]}
    jsonschema.validate(found, schema, jsonschema.Draft202012Validator)


def test_a_job_that_failed_and_an_old_compaction_are_alarms(house: HttpHouse) -> None:
    store = house.store
    assert isinstance(store, DeltaMessageStore)
    began = datetime.now(UTC) - timedelta(days=3)
    record(store.root, JobRun("1", "compact", began, 1.0, "done", {}))
    record(store.root, JobRun("2", "reconcile", began, 1.0, "failed", {}, "no Java"))
    found = house.ask("GET", OVERVIEW, "mia").body
    texts = {alarm["text"]: alarm["severity"] for alarm in found["alarms"]}
    assert texts["the last run of reconcile failed: no Java"] == "fail"
    assert texts["the last compaction ended 3 days ago: sparkstore compact ROOT"] == "warn"
    assert found["last_compaction_at"].startswith(f"{began:%Y-%m-%d}")


def test_a_broker_without_a_root_has_no_disks_and_no_log(tmp_path: Path) -> None:
    it = HttpHouse(tmp_path)
    try:
        found = it.ask("GET", OVERVIEW).body
    finally:
        it.stop()
    assert (found["disks"], found["sync_p50_ms"], found["last_compaction_at"]) == ([], None, None)
    assert (found["messages"], found["oldest_queue"]) == (0, None)


def test_it_takes_the_role_monitor(house: HttpHouse) -> None:
    assert house.ask("GET", OVERVIEW, "nora").status == 403
