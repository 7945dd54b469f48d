"""Millions of waiting messages in a small memory: part of `make bench-messages`.

    python -m jobs.benchmarks.bench_memory [--n N] [--sample N] [--wire] [--root DIR]

A queue is filled with `--n` messages of 1 KiB: into the root, before `sparkstore serve` starts on
it, or with `--wire` through the broker. Then, over AMQP, by a client that drives proton's engine
itself: messages that were just sent are consumed (those are in memory still), and the first
`--sample` of the waiting ones, in order, whose content is on disk only. What the issue asks for is
printed beside; exit code 1 if it is missed, or if a message came out of turn.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from broker_shim.completion import Completion
from broker_shim.errors import StoreError
from broker_shim.listener_1_0.messages.message import parse
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import Queue
from jobs.benchmarks.machine import BUILD, append_and_sync_ms, describe, median
from jobs.benchmarks.raw_amqp import Receiver, encoded, send_all
from sparkstore.log.tuning import tune_process

SIZE = 1024
QUEUE, WARM = "waiting", "warm"
MAX_RESIDENT_MB, LEAST_SHARE, MAX_FIRST_MS = 600, 0.5, 100.0
_IN_FLIGHT = 2_000
_IN_MEMORY = 20_000
_ROUNDS = 3


class Memory(NamedTuple):
    """Of a process, in MB: resident now, and the most it ever was."""

    now_mb: float
    most_mb: float


class Broker:
    """`sparkstore serve` on a root, in a process of its own."""

    def __init__(self, root: Path) -> None:
        started = time.perf_counter()
        command = [sys.executable, "-m", "broker_shim.serve.command", str(root)]
        options = ["--listen", "127.0.0.1:0", "--queue", QUEUE, "--queue", WARM]
        self._process = subprocess.Popen(
            [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith("READY "):
            sys.exit(f"the broker did not start: {line!r}")
        self.url = line.split()[1]
        self.start_s = time.perf_counter() - started

    def memory(self) -> Memory:
        """What it takes."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        now, most = (
            int(re.findall(rf"{name}:\s+(\d+) kB", status)[0]) / 1024 for name in ("VmRSS", "VmHWM")
        )
        return Memory(now, most)

    def forget_most(self) -> None:
        """Begin to count the most it takes anew."""
        Path(f"/proc/{self._process.pid}/clear_refs").write_text("5")

    def stop(self) -> None:
        """Politely."""
        self._process.terminate()
        self._process.wait()


@contextmanager
def serving(root: Path) -> Iterator[Broker]:
    """A broker for a while."""
    broker = Broker(root)
    try:
        yield broker
    finally:
        broker.stop()


def fill(root: Path, count: int) -> float:
    """Put messages on the queue without a broker; how many a second."""
    store = DeltaMessageStore(root)
    tune_process()
    created = Completion()
    store.create(Queue(QUEUE), created.finish)
    created.complete()
    room = threading.Semaphore(_IN_FLIGHT)
    refusals: list[StoreError] = []

    def done(error: StoreError | None) -> None:
        room.release()
        if error is not None:
            refusals.append(error)

    started = time.perf_counter()
    for number in range(count):
        room.acquire()
        header, body = parse(encoded(number, SIZE), now_us=0)
        store.enqueue(store.message(header, body), QUEUE, done)
    store.catch_up()
    store.close()
    if refusals:
        sys.exit(f"the store refused: {refusals[0]}")
    return count / (time.perf_counter() - started)


class Told(NamedTuple):
    """What the benchmark found: see `report`."""

    start_s: float
    waiting: Memory
    consuming: Memory
    in_memory_per_second: float
    on_disk_per_second: float
    first_ms: float
    is_in_order: bool


def measure(root: Path, waiting: int, sample: int, *, wire: bool) -> Told:
    """Start a broker on a filled root (with `wire`: fill it), and consume."""
    with serving(root) as broker:
        if wire:
            took_s = send_all(broker.url, QUEUE, 0, waiting, SIZE)
            print(f"sent {waiting:,} messages by AMQP: {waiting / took_s:,.0f}/s")
        resident = broker.memory()
        broker.forget_most()
        rates = [_in_memory(broker.url) for _ in range(_ROUNDS)]
        receiver = Receiver(broker.url, QUEUE)
        took_s = receiver.take(sample)
        return Told(
            broker.start_s,
            resident,
            broker.memory(),
            median(rates),
            sample / took_s,
            receiver.first_ms,
            receiver.numbers == [*range(sample)],
        )


def _in_memory(url: str) -> float:
    """Messages a second of those that came just before, and are in memory still."""
    send_all(url, WARM, 0, _IN_MEMORY, SIZE)
    receiver = Receiver(url, WARM)
    took_s = receiver.take(_IN_MEMORY)
    receiver.close()
    return _IN_MEMORY / took_s


def report(run: Told, count: int) -> int:
    """Print what was found beside what is asked for; the exit code."""
    share = run.on_disk_per_second / run.in_memory_per_second
    most_mb = max(run.waiting.now_mb, run.consuming.most_mb)
    print(
        f"\n{count:,} waiting messages of {SIZE} bytes; the broker started in {run.start_s:.1f} s,"
        f" most resident until then {run.waiting.most_mb:,.0f} MB\n"
        f"consumed from memory {run.in_memory_per_second:,.0f}/s,"
        f" from disk in order {run.on_disk_per_second:,.0f}/s"
    )
    checks = [
        ("resident, waiting", f"{run.waiting.now_mb:,.0f} MB", f"<= {MAX_RESIDENT_MB} MB"),
        ("most resident, consuming", f"{most_mb:,.0f} MB", f"<= {MAX_RESIDENT_MB} MB"),
        ("from disk / from memory", f"{share:.2f}", f">= {LEAST_SHARE}"),
        ("first message after credit", f"{run.first_ms:.0f} ms", f"<= {MAX_FIRST_MS:.0f} ms"),
        ("in order", str(run.is_in_order), "True"),
    ]
    passed = [
        run.waiting.now_mb <= MAX_RESIDENT_MB,
        most_mb <= MAX_RESIDENT_MB,
        share >= LEAST_SHARE,
        run.first_ms <= MAX_FIRST_MS,
        run.is_in_order,
    ]
    for (what, value, asked), is_met in zip(checks, passed, strict=True):
        print(f"{what:28} {value:>10}  {asked:>10}  {'ok' if is_met else 'MISSED'}")
    return 0 if all(passed) else 1


def main() -> int:
    """Fill, measure, report."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--n", type=int, default=2_000_000, help="messages that wait")
    parser.add_argument("--sample", type=int, default=100_000, help="so many are consumed")
    parser.add_argument("--wire", action="store_true", help="fill through the broker")
    parser.add_argument("--root", type=Path, help="filled by an earlier run; it is used up")
    options = parser.parse_args()
    print(f"machine: {describe()}")
    with tempfile.TemporaryDirectory(dir=BUILD) as scratch:
        print(
            f"bare append + fdatasync: p50 {median(append_and_sync_ms(Path(scratch), SIZE)):.3f} ms"
        )
        root = options.root or Path(scratch) / "root"
        if options.root is None and not options.wire:
            per_second = _fill_in_a_process(root, options.n)
            print(f"filled without a broker: {per_second:,.0f}/s, load {os.getloadavg()[0]:.1f}")
        figures = measure(root, options.n, options.sample, wire=options.wire)
        shutil.rmtree(Path(scratch) / "root", ignore_errors=True)
    return report(figures, options.n)


def _fill_in_a_process(root: Path, count: int) -> float:
    code = "import sys; from pathlib import Path; from jobs.benchmarks.bench_memory import fill;"
    code += "print(fill(Path(sys.argv[1]), int(sys.argv[2])))"
    command = [sys.executable, "-c", code, str(root), str(count)]
    return float(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


if __name__ == "__main__":
    sys.exit(main())
