"""What a monitor asks over HTTP: metrics, health and readiness, of a process in any state."""

from __future__ import annotations

import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker_shim.errors import InvalidRequest
from broker_shim.serve import monitor as module
from broker_shim.serve import probes
from broker_shim.serve.bind_address import parse_listen
from broker_shim.serve.monitor import MOST_REQUESTS, Monitor
from broker_shim.serve.options import parser
from broker_shim.serve.probes import Probes
from broker_shim.serve.reporting import reporter_of
from broker_shim.serve.systemd import READY, notify
from sparkstore.metrics.exposition import counter, gauge

TIMEOUT_S = 20
ODD = 'a"b\\c\nd ü\ud800'


@pytest.fixture
def monitor() -> Iterator[Monitor]:
    it = Monitor(parse_listen("127.0.0.1:0"), Probes())
    yield it
    it.close()


def get(monitor: Monitor, path: str, method: str = "GET") -> tuple[int, str]:
    asked = urllib.request.Request(monitor.url + path, method=method)
    try:
        with urllib.request.urlopen(asked, timeout=TIMEOUT_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def test_a_process_that_starts_is_well_and_not_ready(monitor: Monitor) -> None:
    assert get(monitor, "/healthz") == (200, "ok\n")
    assert get(monitor, "/readyz") == (503, "the store is being opened\n")
    assert "process_resident_memory_bytes" in get(monitor, "/metrics")[1]


def test_what_serves_is_ready_until_it_says_why_not(monitor: Monitor) -> None:
    trouble: list[str] = []
    monitor.subject.now(lambda: (), lambda: trouble[0] if trouble else None, None)
    assert get(monitor, "/readyz") == (200, "ok\n")
    trouble.append("no room")
    assert get(monitor, "/readyz") == (503, "no room\n")
    assert get(monitor, "/healthz")[0] == 200


def test_metrics_have_help_and_labels_that_prometheus_reads_back(monitor: Monitor) -> None:
    families = [
        gauge("depth", "How many.", [({"queue": ODD}, 3), ({"queue": "b"}, 0)]),
        counter("came", "How many came.", [({"queue": "b"}, 7)]),
        gauge("none", "Of nothing.", []),
    ]
    monitor.subject.now(lambda: families, lambda: None, None)
    read = {each.name: each for each in text_string_to_metric_families(get(monitor, "/metrics")[1])}
    assert read["depth"].documentation == "How many."
    values = {each.labels["queue"]: each.value for each in read["depth"].samples}
    assert values == {ODD.encode("utf-8", "backslashreplace").decode(): 3, "b": 0}
    assert [each.name for each in read["came"].samples] == ["came_total"]


def test_answers_are_put_together_by_whoever_owns_them(monitor: Monitor) -> None:
    """And one that does not come round is told apart from one that is not ready."""
    calls: list[Callable[[], None]] = []
    asked = threading.Event()

    def post(call: Callable[[], None]) -> None:
        calls.append(call)
        asked.set()

    owner: list[int] = []
    monitor.subject.now(lambda: (), lambda: owner.append(threading.get_ident()), post)
    found: list[tuple[int, str]] = []
    thread = threading.Thread(target=lambda: found.append(get(monitor, "/readyz")))
    thread.start()
    assert asked.wait(TIMEOUT_S)
    calls.pop()()
    thread.join(TIMEOUT_S)
    assert (found, owner) == ([(200, "ok\n")], [threading.get_ident()])


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
def test_a_process_that_does_not_come_round_is_not_well(
    monitor: Monitor, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "PATIENCE_S", 0.01)
    monitor.subject.now(lambda: (), lambda: None, lambda _call: None)
    code, text = get(monitor, path)
    assert code == 503
    assert "has not come round" in text


def test_what_is_not_there_is_told_with_what_is(monitor: Monitor) -> None:
    assert get(monitor, "/") == (404, "ask for /metrics, /healthz or /readyz\n")
    assert get(monitor, "/healthz", "HEAD") == (200, "")
    assert get(monitor, "/healthz", "POST")[0] == 501


def test_silent_peers_take_no_more_than_their_places_and_leave_them(
    monitor: Monitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module._Request, "timeout", 0.05)
    address = monitor.socket.getsockname()
    silent = [socket.create_connection(address, TIMEOUT_S) for _ in range(2 * MOST_REQUESTS)]
    for each in silent:
        assert each.recv(1) == b""  # let go of: for want of a place, or after a while
        each.close()
    assert get(monitor, "/healthz")[0] == 200


def test_a_port_that_is_taken_is_told_by_its_option(monitor: Monitor) -> None:
    taken = monitor.url.removeprefix("http://")
    options = parser().parse_args(["--memory", "--metrics-listen", taken])
    with pytest.raises(InvalidRequest, match=f"--metrics-listen {taken}: Address already in use"):
        reporter_of(options)


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


def test_silent_sockets_keep_no_monitor_out(monitor: Monitor) -> None:
    """They need not be waited for: the one that has said nothing for longest gives way."""
    address = monitor.socket.getsockname()
    silent = [socket.create_connection(address, TIMEOUT_S) for _ in range(2 * MOST_REQUESTS)]
    for _ in range(3):
        assert get(monitor, "/healthz") == (200, "ok\n")
    for each in silent:
        each.close()


def test_who_has_asked_keeps_its_place(monitor: Monitor) -> None:
    """The owner is slow: those who wait for its answer give way to nobody."""
    calls: list[Callable[[], None]] = []
    asked = threading.Semaphore(0)

    def post(call: Callable[[], None]) -> None:
        calls.append(call)
        asked.release()

    monitor.subject.now(lambda: (), lambda: None, post)
    found: list[tuple[int, str]] = []
    threads = [
        threading.Thread(target=lambda: found.append(get(monitor, "/readyz")))
        for _ in range(MOST_REQUESTS)
    ]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert asked.acquire(timeout=TIMEOUT_S)
    with socket.create_connection(monitor.socket.getsockname(), TIMEOUT_S) as late:
        assert late.recv(1) == b""  # no place is left for it
    for call in calls:
        call()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert found == [(200, "ok\n")] * MOST_REQUESTS
