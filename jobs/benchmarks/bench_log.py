"""Freshness, long runs and recovery of the store: `make bench-log`.

    python -m jobs.benchmarks.bench_log freshness | commits | recovery [--n N]

freshness   ack to visible for a Delta reader, default settings, under load (ms, p50 and p99)
commits     N Delta commits in a row (commit_interval 0): medians of the first and the last tenth,
            resident memory at both ends
recovery    N messages of 1 KiB waiting, all in the tail: seconds until the store is ready, bytes of
            resident memory; all in state: by `bench_sql`, which runs the compaction
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from deltalake import DeltaTable

from broker_shim.completion import Completion
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import MessageHeader, Queue
from jobs.benchmarks.machine import BUILD, append_and_sync_ms, describe, median, percentile
from sparkstore.config import StoreConfig
from sparkstore.log.tuning import tune_process
from sparkstore.tables.delta_files import newest_version, read_version

_HEADER = MessageHeader(subject="bench")
_FLIGHT = 1000


def freshness(folder: Path, count: int) -> None:
    """A reader polls the table's versions while one thread keeps 32 messages in flight."""
    store = _store(folder / "root", StoreConfig())
    acked: list[tuple[int, float]] = []
    ended = threading.Event()

    def load() -> None:
        body = os.urandom(1024)
        first = 0
        for _ in range(count // 32):
            flight = []
            for _ in range(32):
                done = Completion()
                store.enqueue(store.message(_HEADER, body), "bench", done.finish)
                flight.append(done)
            for done in flight:
                done.complete()
            first += 32
            acked.append((first, time.perf_counter()))
        ended.set()

    thread = threading.Thread(target=load)
    thread.start()
    journal, seen = folder / "root" / "journal", []
    before, version = _position(journal), newest_version(journal)
    while not ended.is_set() or newest_version(journal) > version:
        DeltaTable(str(journal))  # what a reader does first
        newest = newest_version(journal)
        if newest > version:
            version = newest
            seen.append((_position(journal) - before, time.perf_counter()))
        time.sleep(0.02)
    thread.join()
    store.close()
    lags = _lags_ms(acked, seen)
    rate = len(acked) * 32 / (acked[-1][1] - acked[0][1])
    print(
        f"ack to visible: p50 {percentile(lags, 0.5):.0f} ms, p99 {percentile(lags, 0.99):.0f} ms"
        f" at {rate:,.0f} messages/s"
    )


def _lags_ms(acked: list[tuple[int, float]], seen: list[tuple[int, float]]) -> list[float]:
    """For each acknowledged position: how much later a reader saw it."""
    sights = iter(seen)
    visible, at = next(sights)
    lags = []
    for position, acked_at in acked:
        while visible < position:
            visible, at = next(sights, (1 << 62, time.perf_counter()))
        lags.append(max(at - acked_at, 0) * 1e3)
    return lags


def _position(journal: Path) -> int:
    for version in range(newest_version(journal), 0, -1):
        last = read_version(journal, version).metadata.get("sparkstore.last_position")
        if last:
            return int(last)
    return 0


def commits(folder: Path, count: int) -> None:
    """Each message is flushed by itself, so it is a Delta commit of its own."""
    store = _store(folder / "root", StoreConfig(commit_interval_ms=0))
    tune_process()
    took, tenth = [], count // 10
    memory = [0, 0]
    for number in range(count):
        done = Completion()
        start = time.perf_counter()
        store.enqueue(store.message(_HEADER, b"x" * 100), "bench", _ignore)
        store.flush(done.finish)
        done.complete()
        took.append((time.perf_counter() - start) * 1e3)
        if number + 1 == tenth:
            memory[0] = _resident_mib()
        if (number + 1) % tenth == 0:
            print(
                f"{number + 1:7,} commits: median {median(took[-tenth:]):.1f} ms,"
                f" resident {_resident_mib()} MiB",
                flush=True,
            )
    memory[1] = _resident_mib()
    first, last = median(took[:tenth]), median(took[-tenth:])
    print(
        f"{count:,} Delta commits: median of the first {tenth:,} {first:.1f} ms, of the last"
        f" {last:.1f} ms, ratio {last / first:.2f}; resident {memory[0]} → {memory[1]} MiB"
    )
    store.close()


def recovery(folder: Path, count: int) -> None:
    """Fill, close, then open in a fresh process."""
    store = _store(folder / "root", StoreConfig())
    tune_process()
    body = os.urandom(1024)
    for _ in range(count // _FLIGHT):
        flight = []
        for _ in range(_FLIGHT):
            done = Completion()
            store.enqueue(store.message(_HEADER, body), "bench", done.finish)
            flight.append(done)
        for done in flight:
            done.complete()
    store.close()
    open_in_a_process(folder / "root", f"{count:,} messages waiting, all in the tail")


def open_in_a_process(root: Path, what: str) -> None:
    """Print how long a fresh process takes from start of the open to ready."""
    code = (
        "import sys,time; from jobs.benchmarks import bench_log as b; t=time.perf_counter();"
        "s=b.DeltaMessageStore(sys.argv[1]); took=time.perf_counter()-t;"
        "n=sum(len(e) for e in s.recover().entries.values());"
        "print(f'{n:,} entries ready in {took:.1f} s, resident {b._resident_mib()} MiB');s.close()"
    )
    command = [sys.executable, "-c", code, str(root)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    print(f"{what}: {output.strip()}")


def _store(root: Path, config: StoreConfig) -> DeltaMessageStore:
    store = DeltaMessageStore(root, config)
    created = Completion()
    store.create(Queue("bench"), created.finish)
    created.complete()
    return store


def _resident_mib() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20


def _ignore(error: object) -> None:
    assert error is None


def main() -> int:
    """Run one or all."""
    benches = {"freshness": (freshness, 200_000), "commits": (commits, 10_000)}
    benches["recovery"] = (recovery, 1_000_000)
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("which", choices=[*benches, "all"])
    parser.add_argument("--n", type=int)
    options = parser.parse_args()
    print(f"machine: {describe()}")
    for name in benches if options.which == "all" else [options.which]:
        run, count = benches[name]
        with tempfile.TemporaryDirectory(dir=BUILD) as scratch:
            raw = median(append_and_sync_ms(Path(scratch), 1024))
            print(f"== {name}; bare append + fdatasync p50 {raw:.3f} ms")
            run(Path(scratch), options.n or count)
    return 0


if __name__ == "__main__":
    sys.exit(main())
