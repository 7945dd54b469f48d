"""What the HTTP port costs a broker, and how fast it answers beside messages: `make bench-http`.

    python -m jobs.benchmarks.bench_http [--queues N] [--count N] [--rounds N]

A broker on a root in build/ has so many queues, made over HTTP. A real Chromium opens the console,
and filters it. Lists of 100 queues are asked for without load; then rounds of persistent messages
of 1 KiB are sent by AMQP 1.0 on one connection, in turn with nobody asking and with a process that
asks 20 times a second: 10,000 messages a second, and as many as go.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import tempfile
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple, TypeVar

from jobs.benchmarks.amqp_brokers import sparkstore_serving
from jobs.benchmarks.amqp_load import message, send_all, send_paced, transfers
from jobs.benchmarks.bench_amqp import SIZE, cpu_s
from jobs.benchmarks.machine import BUILD, describe, median, percentile
from tests.support.system.chromium import CHROMIUM, Page, browser

LIST = "/api/v1/queues?limit=100&offset={offset}"
T = TypeVar("T")
_PAUSE_S = 0.05
_PER_SECOND = 10_000
_OPENED = 10
_ROWS = "document.querySelectorAll('tbody tr').length === {}"


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--count", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(describe())
    BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-http-", dir=BUILD) as folder:
        words = [str(Path(folder).resolve() / "root"), "--queue", "load", "--http", "127.0.0.1:0"]
        with sparkstore_serving(words) as listening:
            measure(listening.port, listening.older_port, listening.pid, options)


def measure(port: int, http_port: int, pid: int, options: argparse.Namespace) -> None:
    """Make the queues, and measure one after the other."""
    began = time.perf_counter()
    asker = http.client.HTTPConnection("127.0.0.1", http_port, timeout=60)
    for number in range(options.queues):
        asker.request(
            "PUT", f"/api/v1/queues/q.{number:05}", b"{}", {"Content-Type": "application/json"}
        )
        answer = asker.getresponse()
        assert answer.status == 200, answer.read()
        answer.read()
    made_s = time.perf_counter() - began
    print(f"{options.queues} queues made over HTTP: {options.queues / made_s:,.0f} a second")
    if CHROMIUM is not None:
        measure_console(f"http://127.0.0.1:{http_port}/", options.queues - 1)
    asker = http.client.HTTPConnection("127.0.0.1", http_port, timeout=60)
    print(f"list of 100 of them, without load: {told([ask(asker, n) for n in range(500)])}")
    payload = transfers(options.count, message(SIZE))
    paced = partial(send_paced, port, "load", payload, options.count, _PER_SECOND)
    fast = partial(send_all, port, "load", [payload], options.count)
    for title, send in ((f"{_PER_SECOND:,} messages a second", paced), ("as many as go", fast)):
        measure_beside(title, Sending(pid, send, options.count), http_port, options.rounds)


class Sending(NamedTuple):
    """A load on the broker.

    Attributes:
        pid: The broker's process.
        send: Sends all messages; returns the seconds until they are settled.
        count: Messages of a round.
    """

    pid: int
    send: Callable[[], float]
    count: int


class Round(NamedTuple):
    """A round: messages a second, and the broker's processor time for each, in µs."""

    rate: float
    cost_us: float


def measure_beside(title: str, sending: Sending, http_port: int, rounds: int) -> None:
    """Print what a load comes to while nobody asks, in turn with 20 lists a second, and those."""
    quiet, asked, lists = list[Round](), list[Round](), list[float]()
    for _ in range(rounds):
        quiet.append(one_round(sending))
        answer, took = beside(http_port, lambda: one_round(sending))
        asked.append(answer)
        lists += took
    for name, some in (("nobody asks", quiet), ("20 lists a second", asked)):
        rates, cost = [one.rate for one in some], median([one.cost_us for one in some])
        told_rates = f"{median(rates):,.0f} ({spread(rates)})"
        print(f"{title}, {name}: {told_rates} a second, {cost:.1f} µs of processor each")
    print(f"{title}: those lists: {told(lists)}")


def one_round(sending: Sending) -> Round:
    """Send all messages of a round."""
    before_s = cpu_s(sending.pid)
    took_s = sending.send()
    cost_s = cpu_s(sending.pid) - before_s
    return Round(sending.count / took_s, cost_s / sending.count * 1e6)


def measure_console(url: str, last: int) -> None:
    """Open the console again and again; print how long until it shows queues, and finds one."""
    shown, filtered = list[float](), list[float]()
    profile = tempfile.TemporaryDirectory(prefix="profile-", dir=BUILD)
    with profile, browser(Path(profile.name).resolve()) as page:
        for _ in range(_OPENED):
            page.open("about:blank")
            page.until("location.href === 'about:blank'")
            page.open(url)
            page.until(_ROWS.format(100))
            shown.append(page.evaluate("performance.now()") / 1000)
            filtered.append(filtered_s(page, f"q.{last:05}"))
    print(f"console: {told(shown)} until 100 queues are shown")
    print(f"console: {told(filtered)} from a name typed to that queue alone")


def filtered_s(page: Page, name: str) -> float:
    """Type a name into the filter; seconds until the list has that queue alone."""
    page.evaluate("document.getElementById('filter').focus()")
    began = time.perf_counter()
    page.write(name)
    page.until(_ROWS.format(1))
    return time.perf_counter() - began


def beside(http_port: int, work: Callable[[], T]) -> tuple[T, list[float]]:
    """Work while another process asks; what the work returns, and the seconds of each answer."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=keep_asking, args=(http_port, theirs))
    process.start()
    try:
        answer = work()
        ours.send(None)
        took: list[float] = ours.recv()
    finally:
        process.join()
    return answer, took


def keep_asking(http_port: int, until: Connection) -> None:
    """Ask until the other side says that it is enough; then send it the seconds of each answer."""
    asker = http.client.HTTPConnection("127.0.0.1", http_port, timeout=60)
    took: list[float] = []
    while not until.poll(_PAUSE_S):
        took.append(ask(asker, len(took)))
    until.send(took)


def ask(asker: http.client.HTTPConnection, number: int) -> float:
    """Ask for a page of queues; the seconds until it is there and read."""
    began = time.perf_counter()
    asker.request("GET", LIST.format(offset=number * 100 % 9_900))
    content = asker.getresponse().read()
    took = time.perf_counter() - began
    assert json.loads(content)["items"]
    return took


def told(seconds: list[float]) -> str:
    """Write the median and the slowest hundredth of some times."""
    p50, p99 = (1000 * percentile(seconds, share) for share in (0.5, 0.99))
    return f"p50 {p50:.1f} ms, p99 {p99:.1f} ms of {len(seconds)}"


def spread(rates: list[float]) -> str:
    """Write the least and the most of some rates."""
    return f"{min(rates):,.0f} to {max(rates):,.0f}"


if __name__ == "__main__":
    main()
