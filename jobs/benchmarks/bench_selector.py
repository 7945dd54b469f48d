"""A selector over a deep queue: `python -m jobs.benchmarks.bench_selector [--messages N]`.

A root is filled with `--messages` waiting messages (1 KiB bodies, a property n that counts to a
thousand again and again), `sparkstore serve` starts on it, and a proton client attaches with
`n = 500`, which one message in a thousand fits. Printed: messages looked at a second, from the
credit to the answered drain, and the processor's time for each; the broker's resident memory
before, at most, and after; and what a second client waited meanwhile for each message that it sent
to another queue, one after the other: it shares the interpreter with the reading of headers. Lines
on standard error, JSON on standard output; exit code 1 if a message that fits did not come, or
memory rose by more than 160 MiB: that
is the store's cache of content (64 MiB) and what Arrow takes to read files, however many there are.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Container, Selector
from proton.utils import BlockingConnection

from broker_shim.completion import Completion
from broker_shim.errors import StoreError
from broker_shim.listener_1_0.messages.message import parse
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import Queue
from jobs.benchmarks.machine import BUILD, append_and_sync_ms, describe, median, percentile
from sparkstore.log.tuning import tune_process

QUEUE, OTHER = "deep", "other"
ONE_IN = 1_000
BODY = b"x" * 1024
SELECTOR = "n = 500 AND region = 'EU'"
MOST_GROWTH_MB = 160
_IN_FLIGHT = 2_000


def fill(root: Path, count: int) -> None:
    """Put messages on the queue, without a broker."""
    encoded = [
        bytes(Message(body=BODY, durable=True, properties={"n": n, "region": "EU"}).encode())
        for n in range(ONE_IN)
    ]
    store = DeltaMessageStore(root)
    tune_process()
    created = Completion()
    store.create(Queue(QUEUE), created.finish)
    created.complete()
    room = threading.Semaphore(_IN_FLIGHT)

    def done(error: StoreError | None) -> None:
        assert error is None, error
        room.release()

    for number in range(count):
        room.acquire()
        header, body = parse(encoded[number % ONE_IN], now_us=0)
        store.enqueue(store.message(header, body), QUEUE, done)
    store.close()


class Broker:
    """`sparkstore serve` on a root, in a process of its own."""

    def __init__(self, root: Path) -> None:
        command = [sys.executable, "-m", "broker_shim.serve.command", str(root)]
        self._process = subprocess.Popen(
            [*command, "--listen", "127.0.0.1:0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().split()[1]

    def memory_mb(self) -> tuple[float, float]:
        """Resident now, and the most it ever was."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        now, most = (re.findall(rf"{name}:\s+(\d+) kB", status)[0] for name in ("VmRSS", "VmHWM"))
        return int(now) / 1024, int(most) / 1024

    def cpu_s(self) -> float:
        """What it has used of the processors, all threads."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def forget_most(self) -> None:
        """Count the most it takes anew."""
        Path(f"/proc/{self._process.pid}/clear_refs").write_text("5")

    def stop(self) -> None:
        """Politely."""
        self._process.terminate()
        self._process.wait()


class Selecting(MessagingHandler):
    """Takes all that a selector fits, by a drain; counts, and says how long that took."""

    def __init__(self, url: str) -> None:
        super().__init__(prefetch=0)
        self._url = url
        self.count = 0
        self.first_s = self.took_s = 0.0

    def on_start(self, event: Any) -> None:
        """Connect."""
        self._connection = event.container.connect(self._url, reconnect=False)
        event.container.create_receiver(self._connection, QUEUE, options=Selector(SELECTOR))

    def on_link_opened(self, event: Any) -> None:
        """Ask for everything there is."""
        self._began_s = time.perf_counter()
        event.receiver.drain(1_000_000)

    def on_message(self, _event: Any) -> None:
        """One more; it is accepted."""
        self.count += 1
        if self.count == 1:
            self.first_s = time.perf_counter() - self._began_s

    def on_link_flow(self, event: Any) -> None:
        """The broker says that there is no more."""
        if event.receiver and event.receiver.credit == 0:
            self.took_s = time.perf_counter() - self._began_s
            self._connection.close()


class Sender(threading.Thread):
    """Sends one message after the other, each when the one before was accepted."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url = url
        self.is_over = threading.Event()
        self.took_ms: list[float] = []

    def run(self) -> None:
        """Until it is over."""
        connection = BlockingConnection(self._url, timeout=60)
        sender = connection.create_sender(OTHER)
        while not self.is_over.is_set():
            began_s = time.perf_counter()
            sender.send(Message(body="x", durable=True))
            self.took_ms.append((time.perf_counter() - began_s) * 1e3)
        connection.close()


def beside(url: str, call: Any) -> list[float]:
    """What another client's sends took while a call was running, in ms."""
    sender = Sender(url)
    sender.start()
    call()
    sender.is_over.set()
    sender.join()
    return sender.took_ms


def measure(root: Path, count: int) -> dict[str, float]:
    """Start a broker on the filled root, and select."""
    broker = Broker(root)
    try:
        alone_ms = beside(broker.url, lambda: time.sleep(2))
        before_mb, _most = broker.memory_mb()
        broker.forget_most()
        selecting = Selecting(broker.url)
        cpu_s = broker.cpu_s()
        sends_ms = beside(broker.url, Container(selecting).run)
        cpu_s = broker.cpu_s() - cpu_s
        after_mb, most_mb = broker.memory_mb()
    finally:
        broker.stop()
    return {
        "messages": count,
        "found": selecting.count,
        "looked_at_per_second": count / selecting.took_s,
        "cpu_us_each": cpu_s / count * 1e6,
        "first_ms": selecting.first_s * 1e3,
        "resident_before_mb": before_mb,
        "resident_most_mb": most_mb,
        "resident_after_mb": after_mb,
        "send_alone_p50_ms": median(alone_ms),
        "send_alone_most_ms": max(alone_ms),
        "send_beside_p50_ms": median(sends_ms),
        "send_beside_p99_ms": percentile(sends_ms, 0.99),
        "send_beside_most_ms": max(sends_ms),
    }


def main() -> int:
    """Measure and print; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--root", type=Path, help="a root that is filled already, or is to be")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="selector-", dir=BUILD))
    root = options.root or folder / "root"
    try:
        sync_ms = median(append_and_sync_ms(folder, 1024))
        sys.stderr.write(f"{describe()}; append + fdatasync {sync_ms:.2f} ms\n")
        if not root.exists():
            fill(root, options.messages)
        figures = measure(root, options.messages)
    finally:
        shutil.rmtree(folder)
    for name, value in figures.items():
        sys.stderr.write(f"{name:22} {value:14,.1f}\n")
    sys.stdout.write(json.dumps({"selector": figures}) + "\n")
    growth_mb = figures["resident_most_mb"] - figures["resident_before_mb"]
    is_whole = figures["found"] == options.messages // ONE_IN
    return 0 if is_whole and growth_mb <= MOST_GROWTH_MB else 1


if __name__ == "__main__":
    sys.exit(main())
