"""What a monitor asks over HTTP: metrics, health and readiness, of a process in any state."""

from __future__ import annotations

import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker_shim.broker.settings import BrokerSettings
from broker_shim.errors import InvalidRequest
from broker_shim.security.guard import Guard
from broker_shim.security.security_settings import SecuritySettings
from broker_shim.serve import probes
from broker_shim.serve.http.http_server import HttpServer, listen_for_metrics
from broker_shim.serve.http_option import http_of
from broker_shim.serve.options import parser
from broker_shim.serve.probes import Probes
from broker_shim.serve.reporting import Reporter
from broker_shim.serve.systemd import READY, notify
from sparkstore.metrics.exposition import counter, gauge

TIMEOUT_S = 20
ODD = 'a"b\\c\nd ü\ud800'


class Monitored(NamedTuple):
    """A process with a port for its monitor."""

    probes: Probes
    url: str


@pytest.fixture
def monitor() -> Iterator[Monitored]:
    server = HttpServer(probes := Probes(), BrokerSettings())
    yield Monitored(probes, listen_for_metrics(server, "127.0.0.1:0"))
    server.close()


def get(monitor: Monitored, path: str, method: str = "GET") -> tuple[int, str]:
    asked = urllib.request.Request(monitor.url + path, method=method)
    try:
        with urllib.request.urlopen(asked, timeout=TIMEOUT_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def test_a_process_that_starts_is_well_and_not_ready(monitor: Monitored) -> None:
    assert get(monitor, "/healthz") == (200, "ok\n")
    assert get(monitor, "/readyz") == (503, "the store is being opened\n")
    assert "process_resident_memory_bytes" in get(monitor, "/metrics")[1]


def test_what_serves_is_ready_until_it_says_why_not(monitor: Monitored) -> None:
    trouble: list[str] = []
    monitor.probes.now(lambda: (), lambda: trouble[0] if trouble else None, None)
    assert get(monitor, "/readyz") == (200, "ok\n")
    trouble.append("no room")
    assert get(monitor, "/readyz") == (503, "no room\n")
    assert get(monitor, "/healthz")[0] == 200


def test_of_two_machines_one_is_the_primary_and_one_a_standby_in_step(monitor: Monitored) -> None:
    assert get(monitor, "/primary")[0] == 503
    assert get(monitor, "/standby") == (503, "no standby\n")
    trouble: list[str] = ["it has not connected yet"]
    monitor.probes.standby_trouble = lambda: trouble[0] if trouble else None
    assert get(monitor, "/standby") == (503, "it has not connected yet\n")
    trouble.clear()
    assert get(monitor, "/standby") == (200, "in step\n")
    monitor.probes.standby_trouble, monitor.probes.is_serving = None, True
    assert get(monitor, "/primary") == (200, "primary\n")


def test_metrics_have_help_and_labels_that_prometheus_reads_back(monitor: Monitored) -> None:
    families = [
        gauge("depth", "How many.", [({"queue": ODD}, 3), ({"queue": "b"}, 0)]),
        counter("came", "How many came.", [({"queue": "b"}, 7)]),
        gauge("none", "Of nothing.", []),
    ]
    monitor.probes.now(lambda: families, lambda: None, None)
    read = {each.name: each for each in text_string_to_metric_families(get(monitor, "/metrics")[1])}
    assert read["depth"].documentation == "How many."
    values = {each.labels["queue"]: each.value for each in read["depth"].samples}
    assert values == {ODD.encode("utf-8", "backslashreplace").decode(): 3, "b": 0}
    assert [each.name for each in read["came"].samples] == ["came_total"]


def test_answers_are_put_together_by_whoever_owns_them(monitor: Monitored) -> None:
    """And one that does not come round is told apart from one that is not ready."""
    calls: list[Callable[[], None]] = []
    asked = threading.Event()

    def post(call: Callable[[], None]) -> None:
        calls.append(call)
        asked.set()

    owner: list[int] = []
    monitor.probes.now(lambda: (), lambda: owner.append(threading.get_ident()), post)
    found: list[tuple[int, str]] = []
    thread = threading.Thread(target=lambda: found.append(get(monitor, "/readyz")))
    thread.start()
    assert asked.wait(TIMEOUT_S)
    calls.pop()()
    thread.join(TIMEOUT_S)
    assert (found, owner) == ([(200, "ok\n")], [threading.get_ident()])


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
def test_a_process_that_does_not_come_round_is_not_well(
    monitor: Monitored, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "PATIENCE_S", 0.01)
    monitor.probes.now(lambda: (), lambda: None, lambda _call: None)
    code, text = get(monitor, path)
    assert code == 503
    assert "has not come round" in text


def test_what_is_not_there_is_told_with_what_is(monitor: Monitored) -> None:
    status, text = get(monitor, "/")
    assert (status, "/metrics, /healthz and /readyz are what there is" in text) == (404, True)
    assert get(monitor, "/api/v1/queues")[0] == 404
    assert get(monitor, "/healthz", "HEAD") == (200, "")
    assert get(monitor, "/healthz", "POST")[0] == 405


def test_a_port_that_is_taken_is_told_by_its_option(monitor: Monitored) -> None:
    taken = monitor.url.removeprefix("http://")
    options = parser().parse_args(["--memory", "--metrics-listen", taken])
    with pytest.raises(InvalidRequest, match=f"--metrics-listen {taken}: Address already in use"):
        http_of(options, Guard(SecuritySettings()), Reporter(None), BrokerSettings())


def test_the_service_manager_is_told_if_it_wants_to_be(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("")  # the kernel draws a name of the abstract kind
        manager.settimeout(TIMEOUT_S)
        name = "@" + manager.getsockname()[1:].decode()
        notify(READY, "STATUS=serving", environment={"NOTIFY_SOCKET": name})
        assert manager.recv(100) == b"READY=1\nSTATUS=serving"
    notify(READY, environment={})
    assert not caplog.records
    notify(READY, environment={"NOTIFY_SOCKET": name})
    assert "was not told READY=1" in caplog.text


def test_silent_sockets_keep_no_monitor_out(monitor: Monitored) -> None:
    """They need not be waited for: the one that has said nothing for longest gives way."""
    place = urlsplit(monitor.url)
    with ExitStack() as silent:
        for _ in range(100):
            silent.enter_context(socket.create_connection((place.hostname, place.port), TIMEOUT_S))
        for _ in range(3):
            assert get(monitor, "/healthz") == (200, "ok\n")
