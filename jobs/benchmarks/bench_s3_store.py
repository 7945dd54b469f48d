"""What a store on a bucket costs: python -m jobs.benchmarks.bench_s3_store [--messages N].

    bare put        a conditional put of 1 KiB, one at a time: what an answer can cost at least
    one caller      enqueues of 256 bytes, each after the answer to the one before
    1,000 in flight
    visible         with `ack = "wal"`: from an answer until the commit is in the bucket
    start           on a machine that has no copy, with `--messages` messages waiting
    compact, queues the commands, JVM and all, on what waits: in the bucket and in a folder

on a root on the disk, on one in a bucket with `ack = "delta"` (with `commit_interval_ms` 0 and 200)
and with `ack = "wal"`. The bucket is versitygw's on this machine, and for some figures a server in
this process that takes 30 ms a request. A table on standard error, JSON on standard output.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from uuid import uuid4

import pytest

from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import MessageHeader, Queue
from jobs.benchmarks.bulk_journal import BulkJournal
from jobs.benchmarks.machine import BUILD, describe
from sparkstore.config import StoreConfig
from sparkstore.replication.bucket_promote import promote_in_place
from sparkstore.storage.objects import ObjectStorage
from sparkstore.tables.root import open_or_create_root
from tests.support.objects import versitygw
from tests.support.objects.copies import copy
from tests.support.objects.s3_server import served
from tests.support.stores.stores import done

BODY = b"x" * 256
IN_FLIGHT = 1_000
BARE_PUTS = 300
STEADY = 5_000
AT_ONCE = {"commit_interval_ms": 0}


def timed(count: int, act: Callable[[], object]) -> list[float]:
    """Milliseconds of each of so many calls."""
    took = []
    for _ in range(count):
        began = time.perf_counter()
        act()
        took.append((time.perf_counter() - began) * 1000)
    return took


def rate(store: DeltaMessageStore, count: int) -> float:
    """Messages a second, with so many waiting for their answer."""
    slots, began = threading.Semaphore(IN_FLIGHT), time.perf_counter()

    def answered(error: Exception | None) -> None:
        assert error is None, error
        slots.release()

    for _ in range(count):
        slots.acquire()
        store.enqueue(store.message(MessageHeader(), BODY), "q", answered)
    for _ in range(IN_FLIGHT):
        slots.acquire()
    return count / (time.perf_counter() - began)


def lags(store: DeltaMessageStore, a_second: int, seconds: int) -> list[float]:
    """Milliseconds from each answer until its Delta commit is in the bucket, at a steady rate."""
    acked, sights, before = list[float](), list[tuple[float, int]](), store.metrics.delta_rows
    count, began, beat = a_second * seconds, time.perf_counter(), threading.Event()
    for sent in range(count):
        while (ahead_s := sent / a_second - (time.perf_counter() - began)) > 0:
            sights.append((time.perf_counter(), store.metrics.delta_rows - before))
            beat.wait(min(ahead_s, 0.002))
        message = store.message(MessageHeader(), BODY)
        store.enqueue(message, "q", lambda _error: acked.append(time.perf_counter()))
    while not sights or sights[-1][1] < count:
        sights.append((time.perf_counter(), store.metrics.delta_rows - before))
        beat.wait(0.002)
    lags_ms, sight = [], iter(sights)
    at, rows = next(sight)
    for number, answered in enumerate(acked):
        while rows <= number:
            at, rows = next(sight)
        lags_ms.append(max(0.0, at - answered) * 1000)
    return lags_ms


class Bench:
    """Figures by name, said as they come."""

    def __init__(self) -> None:
        self.figures: dict[str, float] = {}

    def say(self, name: str, figure: float) -> None:
        self.figures[name] = round(figure, 2)
        sys.stderr.write(f"{name:48} {self.figures[name]:>14,}\n")

    def percentiles(self, name: str, took: list[float]) -> None:
        cuts = quantiles(took, n=100)
        self.say(f"{name}, p50 ms", cuts[49])
        self.say(f"{name}, p99 ms", cuts[98])

    def store(self, name: str, where: str, config: StoreConfig, callers: int, count: int) -> None:
        """One kind of store, on a new root."""
        store = DeltaMessageStore(where, config)
        done(store.create, Queue("q"))
        message = lambda: done(store.enqueue, store.message(MessageHeader(), BODY), "q")  # noqa: E731
        before = store.metrics.delta_commits
        self.percentiles(f"{name}: one caller", timed(callers, message))
        if "://" in where:
            commits = store.metrics.delta_commits - before
            self.say(f"{name}: one caller, puts for 1,000", 2 * commits * 1000 / callers)
        before = store.metrics.delta_commits
        self.say(f"{name}: 1,000 in flight, a second", rate(store, count))
        if "://" in where:
            commits = store.metrics.delta_commits - before
            self.say(f"{name}: 1,000 in flight, puts for 1,000", 2 * commits * 1000 / count)
        store.close()


def fill(folder: Path, waiting: int) -> None:
    """A root in a folder, and one in a bucket that has the same records."""
    journal = BulkJournal(open_or_create_root(folder / "primary"))
    journal.enqueue(waiting)
    bucket = ObjectStorage("s3://lake/waiting")
    copy(journal.root.path, bucket)
    promote_in_place(bucket)


def commands(bench: Bench, folder: Path, waiting: int) -> None:
    """The same commands on both; a compaction with nothing to do, too: with the copy it left."""
    alone = open_or_create_root(folder / "alone")
    BulkJournal(alone).enqueue(waiting)
    again = "compact, nothing to do"
    for title, command in (("compact", "compact"), (again, "compact"), ("queues", "queues")):
        for place, where in (("a folder", str(alone.path)), ("a bucket", "s3://lake/waiting")):
            began = time.perf_counter()
            subprocess.run(
                [sys.executable, "-m", "sparkstore", command, where],
                env={**os.environ, "XDG_CACHE_HOME": str(folder.absolute() / "cache")},
                stdout=subprocess.DEVNULL,
                check=True,
            )
            took_s = time.perf_counter() - began
            bench.say(f"{title}, {waiting:,} waiting in {place}, s", took_s)


def starts(bench: Bench, folder: Path, waiting: int) -> None:
    """A start on a machine without a copy, and once more, of a bucket that was promoted."""
    fill(folder, waiting)
    config = StoreConfig(copy_dir=str(folder / "elsewhere"))
    for title in ("start", "  with the copy that it left"):
        began = time.perf_counter()
        store = DeltaMessageStore("s3://lake/waiting", config)
        bench.say(f"{title}, {waiting:,} waiting, s", time.perf_counter() - began)
        store.close()


def main() -> None:
    """Run all and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000)
    waiting, count = parser.parse_args().messages, 20_000
    sys.stderr.write(describe() + "\n")
    bench = Bench()
    with TemporaryDirectory(dir=BUILD) as name, pytest.MonkeyPatch.context() as environment:
        folder = Path(name)
        with versitygw.served(folder / "buckets", environment):
            bare, content = ObjectStorage("s3://lake/bare"), os.urandom(1024)
            bench.percentiles(
                "bare put of 1 KiB",
                timed(BARE_PUTS, lambda: bare.put_if_absent(uuid4().hex, content)),
            )
            bench.store("disk", str(folder / "root"), StoreConfig(), 2_000, count)

            def config(root: str, **more: object) -> StoreConfig:
                return StoreConfig(copy_dir=str(folder / root / "copy"), **more)  # type: ignore[arg-type]

            at_once = config("at-once", **AT_ONCE)
            bench.store('"delta", 0 ms', "s3://lake/at-once", at_once, 300, count)
            bench.store('"delta", 200 ms', "s3://lake/by-200", config("by-200"), 30, count)
            wal = config("wal", ack="wal", wal_dir=str(folder / "wal" / "log"))
            bench.store('"wal"', "s3://lake/wal", wal, 2_000, count)
            starts(bench, folder, waiting)
            commands(bench, folder, waiting)
        with served(environment) as slow:
            slow.faults = [lambda _request: time.sleep(0.03)]
            bare = ObjectStorage("s3://lake/bare")
            put = lambda: bare.put_if_absent(uuid4().hex, content)  # noqa: E731
            bench.percentiles("30 ms: bare put of 1 KiB", timed(50, put))
            bench.store(
                '30 ms: "delta", 0 ms', "s3://lake/slow", config("slow", **AT_ONCE), 50, count
            )
            wal = config("fresh", ack="wal", wal_dir=str(folder / "fresh" / "log"))
            with closing(DeltaMessageStore("s3://lake/fresh", wal)) as store:
                done(store.create, Queue("q"))
                title = f'30 ms: "wal", {STEADY:,} a second, answered until visible'
                bench.percentiles(title, lags(store, STEADY, 20))
    print(json.dumps(bench.figures))


if __name__ == "__main__":
    main()
