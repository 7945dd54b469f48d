"""What a served root exposes: OpenMetrics, strictly read, and the names of `conf/monitoring`."""

from __future__ import annotations

import json
import re
import urllib.request
from datetime import UTC, datetime
from typing import Any

import proton
import pytest
import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from proton.utils import BlockingConnection, SendException

from sparkstore.jobs import textfile
from sparkstore.jobs.job_runs import JobRun
from tests.support.checkout import CHECKOUT
from tests.support.roots.logs import until
from tests.support.system.processes import BrokerProcess, StartBroker

pytestmark = [pytest.mark.system, pytest.mark.slow]

TIMEOUT_S = 20
NAME = re.compile(r"\b(?:sparkstore|process)_[a-z0-9_]+\b")
SHOWN = CHECKOUT / "conf" / "monitoring"


def samples(broker: BrokerProcess) -> dict[tuple[str, str], float]:
    """By name, and by queue or reason; the text is of OpenMetrics, and strictly so."""
    found = re.search(r" metrics=(\S+)", broker.ready_line)
    assert found is not None
    headers = {"Accept": "application/openmetrics-text; version=1.0.0"}
    asked = urllib.request.Request(found[1] + "/metrics", headers=headers)
    with urllib.request.urlopen(asked, timeout=TIMEOUT_S) as answer:
        assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
        families = [*text_string_to_metric_families(answer.read().decode())]
    assert len({each.name for each in families}) == len(families)
    return {
        (each.name, each.labels.get("le") or each.labels.get("queue", "")): each.value
        for family in families
        for each in family.samples
    }


def used_names() -> set[str]:
    """The names of metrics in the dashboard's queries and in the alert rules."""
    dashboard: Any = json.loads((SHOWN / "grafana.json").read_text())
    rules: Any = yaml.safe_load((SHOWN / "alerts.yaml").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    asked += [each["query"] for each in dashboard["templating"]["list"]]
    asked += [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    assert all(
        rule["annotations"]["action"] for group in rules["groups"] for rule in group["rules"]
    )
    return {name for text in asked for name in NAME.findall(text)}


RISES = re.compile(r"\b(?:rate|irate|increase|delta)\((sparkstore_[a-z0-9_]+)")


def test_each_counter_that_an_alert_reads_is_there_before_it_counts(
    start_broker: StartBroker, tmp_path: Any
) -> None:
    """One that began to exist with its first refusal would not have risen for `increase`."""
    rules: Any = yaml.safe_load((SHOWN / "alerts.yaml").read_text())
    texts = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    read = {name for text in texts for name in RISES.findall(text)}
    assert {"sparkstore_queue_refused_total", "sparkstore_broker_dead_lettered_total"} <= read
    config = tmp_path / "sparkstore.toml"
    config.write_text(
        '[[broker.queues]]\nname = "small"\narguments = {max_depth = 1}\n'
        '[[broker.queues]]\nname = "ring"\narguments = {max_bytes = 9, when_full = "drop_head"}\n'
        '[[broker.queues]]\nname = "once"\narguments = {duplicate_window_ms = 9}\n'
        '[[broker.queues]]\nname = "open"\n'
    )
    started = ("--metrics-listen", "127.0.0.1:0", "--config", str(config))
    for place in (str(tmp_path / "root"), "--memory"):
        broker = start_broker(place, *started)
        shown = samples(broker)
        refused = {queue: n for (name, queue), n in shown.items() if name.endswith("refused_total")}
        assert refused | {"": 0} == {"small": 0, "ring": 0, "": 0}
        assert shown["sparkstore_queue_dropped_total", "ring"] == 0
        assert shown["sparkstore_queue_dropped_total", "once"] == 0
        ours = {name for name in read if place != "--memory" or "_log_" not in name}
        assert ours <= {name for name, _ in shown}
        assert broker.terminate() == 0


def test_what_the_dashboard_and_the_alerts_ask_for_is_exposed(
    start_broker: StartBroker, tmp_path: Any
) -> None:
    config = tmp_path / "sparkstore.toml"
    config.write_text('[[broker.queues]]\nname = "small"\narguments = {max_depth = 1}\n')
    (token := tmp_path / "token").write_text("a token of the pair")
    token.chmod(0o600)
    started = ("--metrics-listen", "127.0.0.1:0", "--config", str(config))
    in_pair = ("--standby-listen", "127.0.0.1:0", "--token-file", str(token))
    broker = start_broker(str(tmp_path / "root"), *started, *in_pair)
    client = BlockingConnection(broker.url, timeout=TIMEOUT_S)
    sender = client.create_sender("small")
    sender.send(proton.Message("first", durable=True))
    with pytest.raises(SendException):
        sender.send(proton.Message("no room", durable=True))
    receiver = client.create_receiver("small", credit=1)
    receiver.receive(timeout=TIMEOUT_S)
    receiver.accept()
    client.close()
    settled = ("sparkstore_broker_settlement_duration_seconds_count", "")
    until(lambda: samples(broker)[settled] == 1)
    until(lambda: samples(broker)["sparkstore_log_delta_commit_duration_seconds_count", ""] > 0)
    shown = samples(broker)
    assert shown["sparkstore_broker_delivery_duration_seconds_count", ""] == 1
    assert shown["sparkstore_log_sync_duration_seconds_bucket", "+Inf"] > 0
    assert shown["sparkstore_queue_refused_total", "small"] == 1
    run = JobRun("1", "compact", datetime(2026, 11, 27, tzinfo=UTC), 1.0, "done", {})
    exposed = {name for name, _label in shown} | {*NAME.findall(textfile.text(run, "/r"))}
    used = used_names()
    assert len(used) > 20
    assert used - exposed == set()
    assert broker.terminate() == 0
