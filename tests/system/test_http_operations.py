"""Orders about many messages over HTTP, and what takes them back, of a real broker on a root."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import proton
import pytest
from proton.utils import BlockingConnection

from sparkstore.jobs import job_runs
from sparkstore.jobs.job_runs import JobRun
from sparkstore.tables.root import open_root
from tests.support.system.processes import BrokerProcess, StartBroker

pytestmark = [pytest.mark.system, pytest.mark.slow]

TIMEOUT_S = 60
CONFIG = """\
[[broker.queues]]
name = "orders"
arguments = {dead_letter_queue = "dead"}
[[broker.queues]]
name = "dead"
"""
Ask = Callable[..., Any]


@pytest.fixture
def broker(start_broker: StartBroker, tmp_path: Path) -> BrokerProcess:
    config = tmp_path / "sparkstore.toml"
    config.write_text(CONFIG)
    return start_broker(str(tmp_path / "root"), "--http", "127.0.0.1:0", "--config", str(config))


@pytest.fixture
def ask(broker: BrokerProcess) -> Ask:
    found = re.search(r" http=(\S+)", broker.ready_line)
    assert found is not None

    def ask(path: str, said: Any = None, status: int = 200) -> Any:
        body = None if said is None else json.dumps(said).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{found[1]}/api/v1/{path}", body, headers)
        if status != 200:
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(request, timeout=TIMEOUT_S)
            assert refused.value.code == status
            return json.loads(refused.value.read())
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return json.loads(answer.read())

    return ask


def bodies(ask: Ask, queue: str) -> list[str]:
    items = ask(f"queues/{queue}/messages")["items"]
    return [json.loads(ask(f"queues/{queue}/messages/{each['id']}")["body"]) for each in items]


def test_dead_letters_go_back_and_what_was_done_is_undone(broker: BrokerProcess, ask: Ask) -> None:
    client = BlockingConnection(broker.url, timeout=TIMEOUT_S)
    sender = client.create_sender("orders")
    for body in ("a", "b", "c"):
        sender.send(proton.Message(body, durable=True))
    receiver = client.create_receiver("orders", credit=1)
    receiver.receive(timeout=TIMEOUT_S)
    receiver.reject()
    client.close()
    (dead,) = ask("queues/dead/messages")["items"]
    assert dead["death"]["queue"] == "orders"
    planned = ask("queues/dead/redrive", {"dry_run": True})
    assert (planned["to"], planned["done"], planned["operation"]) == ({"orders": 1}, 0, None)
    assert bodies(ask, "dead") == ["a"]
    driven = ask("queues/dead/redrive", {})
    assert (driven["to"], driven["done"]) == ({"orders": 1}, 1)
    first = ask("queues/orders/messages")["items"][0]["id"]
    assert ask("queues/orders/requeue", {"ids": [first], "dry_run": True})["would"] == 1
    assert ask("queues/orders/requeue", {"ids": [first]})["done"] == 1
    before = bodies(ask, "orders")
    assert before == ["c", "a", "b"]
    purged = ask("queues/orders/purge", {})
    assert (purged["done"], bodies(ask, "orders")) == (3, [])
    undo = f"operations/{purged['operation']}/undo"
    planned = ask(undo, {"dry_run": True})
    assert (planned["restored"], planned["done"], bodies(ask, "orders")) == ({"orders": 3}, 0, [])
    undone = ask(undo, {})
    assert (undone["done"], bodies(ask, "orders")) == (3, before)
    listed = ask("operations")["items"]
    assert [each["action"] for each in listed] == ["redriven", "requeued", "purged", "undone"]
    assert listed[2]["undone_by"] == undone["operation"] == listed[3]["operation"]
    assert "undone already" in ask(undo, {}, 409)["error"]
    history = ask(f"messages/{dead['id']}/history")["items"]
    kinds = [each["kind"] for each in history]
    assert kinds[:4] == ["enqueued", "acquired", "enqueued", "dequeued"]
    assert history[3]["detail"]["outcome"] == "dead-lettered"
    assert broker.terminate() == 0


def test_what_history_has_not_is_said_in_a_line(ask: Ask) -> None:
    assert "no operation" in ask("operations/deadbeef/undo", {}, 409)["error"]
    assert "history has no message" in ask("messages/4711/history", None, 404)["error"]
    assert "no message id" in ask("messages/x/history", None, 400)["error"]
    assert "unknown queue" in ask("queues/lost/redrive", {}, 404)["error"]
    assert "unknown queue" in ask("queues/dead/redrive", {"to": "lost"}, 404)["error"]
    assert ask("queues/dead/redrive", {})["done"] == 0
    assert "dry_run" in ask("queues/dead/redrive", {"dryrun": True}, 400)["error"]


def test_upkeep_has_the_runs_of_jobs_and_the_lag_of_replicas(
    broker: BrokerProcess, ask: Ask, tmp_path: Path
) -> None:
    assert ask("upkeep")["job_runs"] == ask("upkeep")["replicas"] == []
    run = JobRun("1", "compact", datetime(2026, 11, 27, tzinfo=UTC), 2.5, "done", {"moved": 7})
    job_runs.record(open_root(tmp_path / "root"), run)
    (row,) = ask("upkeep")["job_runs"]
    assert (row["job"], row["outcome"], row["seconds"]) == ("compact", "done", 2.5)
    assert row["began_at"].startswith("2026-11-27T00:00:00")
    assert "limit" in ask("upkeep?limit=0", None, 400)["error"]
    assert broker.terminate() == 0
