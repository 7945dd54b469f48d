"""The store beside Broker-J's BDB JE store, interleaved in one run: `make bench-store`.

    python -m jobs.benchmarks.bench_store [--n N] [--rounds N] [--peer DIR] [--no-peer] [--json]

What is timed is the same on both sides: make a message of 1 KiB with a small header, enqueue it
durably, wait for its completion; with 1, 8 and 32 threads that each wait for their own, and with
one thread that has 1,000 in flight and then waits for each. Ours gives its 1,000 one by one, and
once more in runs of 100, as a broker gives what one read of a socket brought; a run has one
completion. Beside the callers stands the same hand-over between bare threads of Python and a file,
without a store: nothing in this process could be faster. Figures are medians of the rounds.
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
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from broker_shim.completion import Completion, OnComplete
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import MessageHeader, NewMessageRun, Queue
from jobs.benchmarks.machine import BUILD, append_and_sync_ms, describe, median, percentile
from sparkstore.config import StoreConfig
from sparkstore.log.tuning import tune_process

SIZE = 1024
CALLERS = (1, 8, 32)
WINDOW = 1000
RUN = 100
_PEER_LINE = re.compile(
    r"RESULT BDB +enqueue\+commit(Async/)?\S* +T=(\d+) .*?(\d+) msg/s"
    r" +p50=([\d.]+) ms +p99=([\d.]+)"
)
_HEADER = MessageHeader(
    protocol="raw",
    correlation_id="corr",
    user_id="user",
    app_id="app",
    content_type="application/octet-stream",
    properties=(("k", "v"),),
    body_bytes=SIZE,
)


class Figure(NamedTuple):
    """One phase: messages a second, p50 and p99 of one message in ms."""

    per_second: float
    p50_ms: float
    p99_ms: float


def run_ours(folder: Path, count: int) -> dict[str, Figure]:
    """Each phase on a store of its own, default settings."""
    store = DeltaMessageStore(folder / "root", StoreConfig())
    tune_process()
    created = Completion()
    store.create(Queue("bench"), created.finish)
    created.complete()
    body = os.urandom(SIZE)
    _window(store, body, 2000, 32)  # warm-up, as the peer's
    figures = {f"{n} waiting": _callers(store, body, count, n) for n in CALLERS}
    figures[f"{WINDOW} in flight"] = _window(store, body, count, WINDOW)
    figures[f"{WINDOW} in runs"] = _runs(store, body, count)
    store.close()
    return figures


def run_bare(folder: Path, count: int) -> dict[str, Figure]:
    """The phases of callers that wait, between threads and a file alone."""
    body = os.urandom(SIZE)
    return {f"{n} waiting": _bare(folder, body, count, n) for n in CALLERS}


def _callers(store: DeltaMessageStore, body: bytes, count: int, callers: int) -> Figure:
    def enqueue(on_complete: OnComplete) -> None:
        store.enqueue(store.message(_HEADER, body), "bench", on_complete)

    return _waiting(enqueue, count, callers)


def _bare(folder: Path, body: bytes, count: int, callers: int) -> Figure:
    """A thread that writes and syncs what waits, and lets those go on whose bytes it wrote."""
    inbox: SimpleQueue[OnComplete | None] = SimpleQueue()

    def write() -> None:
        with (folder / "bare").open("w+b", buffering=0) as file:
            file.write(bytes(count * len(body)))
            os.fsync(file.fileno())
            file.seek(0)
            while (first := inbox.get()) is not None:
                group = [first]
                while not inbox.empty() and (more := inbox.get()) is not None:
                    group.append(more)
                file.write(body * len(group))
                os.fdatasync(file.fileno())
                for fire in group:
                    fire(None)

    writer = threading.Thread(target=write)
    writer.start()
    figure = _waiting(inbox.put, count, callers)
    inbox.put(None)
    writer.join()
    (folder / "bare").unlink()
    return figure


def _waiting(enqueue: Callable[[OnComplete], None], count: int, callers: int) -> Figure:
    took: list[list[float]] = [[] for _ in range(callers)]
    go = threading.Event()

    def call(mine: list[float]) -> None:
        go.wait()
        for _ in range(count // callers):
            start = time.perf_counter()
            done = Completion()
            enqueue(done.finish)
            done.complete()
            mine.append(time.perf_counter() - start)

    threads = [threading.Thread(target=call, args=(mine,)) for mine in took]
    for thread in threads:
        thread.start()
    start = time.perf_counter()
    go.set()
    for thread in threads:
        thread.join()
    return _figure([one for mine in took for one in mine], time.perf_counter() - start)


def _window(store: DeltaMessageStore, body: bytes, count: int, window: int) -> Figure:
    took: list[float] = []
    begun = time.perf_counter()
    for _ in range(count // window):
        flight = []
        for _ in range(window):
            start = time.perf_counter()
            done = Completion()
            store.enqueue(store.message(_HEADER, body), "bench", done.finish)
            flight.append((start, done))
        for start, done in flight:
            done.complete()
            took.append(time.perf_counter() - start)
    return _figure(took, time.perf_counter() - begun)


def _runs(store: DeltaMessageStore, body: bytes, count: int) -> Figure:
    """As `_window`; of the messages of a run all have its time."""
    took: list[float] = []
    run = NewMessageRun((_HEADER,), (body,) * RUN, "bench")
    begun = time.perf_counter()
    for _ in range(count // WINDOW):
        flight = []
        for _ in range(WINDOW // RUN):
            start = time.perf_counter()
            done = Completion()
            store.enqueue_new(run, lambda outcomes, done=done: done.finish(outcomes[0]))
            flight.append((start, done))
        for start, done in flight:
            done.complete()
            took += [time.perf_counter() - start] * RUN
    return _figure(took, time.perf_counter() - begun)


def _figure(took_s: list[float], wall_s: float) -> Figure:
    return Figure(
        len(took_s) / wall_s, percentile(took_s, 0.5) * 1e3, percentile(took_s, 0.99) * 1e3
    )


def run_peer(peer: Path, count: int) -> dict[str, Figure]:
    """BDB's phases of the same names, from `bench.sh store BDB`."""
    settings = {"N": str(count), "SIZE": str(SIZE), "THREADS": ",".join(map(str, CALLERS))}
    output = subprocess.run(
        ["bash", "bench.sh", "store", "BDB"],
        cwd=peer,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    figures = {}
    for is_async, threads, rate, p50, p99 in _PEER_LINE.findall(output):
        name = f"{WINDOW} in flight" if is_async else f"{threads} waiting"
        figures[name] = Figure(float(rate), float(p50), float(p99))  # the last window is 1,000
    figures[f"{WINDOW} in runs"] = figures[f"{WINDOW} in flight"]  # it has no call for many
    return figures


def main() -> int:
    """Interleave rounds, print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--n", type=int, default=20_000, help="messages a phase")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peer", type=Path, default=Path("../shared/peers/brokerj"))
    parser.add_argument("--no-peer", action="store_true", help="without Broker-J (needs mvn)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    print(f"machine: {describe()}; bodies of {SIZE} bytes, {options.n} messages a phase")
    rounds: dict[str, dict[str, list[Figure]]] = defaultdict(lambda: defaultdict(list))
    raw: list[float] = []
    with tempfile.TemporaryDirectory(dir=BUILD) as scratch:
        folder = Path(scratch)
        if not options.no_peer:
            shutil.copytree(options.peer, folder / "peer", ignore=shutil.ignore_patterns("target"))
        for number in range(options.rounds):
            raw.append(median(append_and_sync_ms(folder, SIZE)))
            sides = {side: run_in_a_process(side, folder, options.n) for side in ("ours", "bare")}
            if not options.no_peer:
                sides["BDB"] = run_peer(folder / "peer", options.n)
            for side, figures in sides.items():
                for name, figure in figures.items():
                    rounds[side][name].append(figure)
            print(f"round {number + 1} of {options.rounds} done, load {os.getloadavg()[0]:.1f}")
    return _report(rounds, median(raw), as_json=options.json)


def run_in_a_process(side: str, folder: Path, count: int) -> dict[str, Figure]:
    """As the peer, each round is a fresh process in a fresh folder."""
    root = folder / side
    root.mkdir()
    code = (
        "import json,sys; from pathlib import Path; from jobs.benchmarks import bench_store as b;"
        f"print(json.dumps(b.run_{side}(Path(sys.argv[1]), int(sys.argv[2]))))"
    )
    output = subprocess.run(
        [sys.executable, "-c", code, str(root), str(count)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    shutil.rmtree(root)
    return {name: Figure(*values) for name, values in json.loads(output).items()}


def _report(rounds: dict[str, dict[str, list[Figure]]], raw_ms: float, *, as_json: bool) -> int:
    table = {
        side: {
            name: Figure(*(median(column) for column in zip(*figures, strict=True)))
            for name, figures in phases.items()
        }
        for side, phases in rounds.items()
    }
    if as_json:
        print(json.dumps({"raw_append_fdatasync_p50_ms": raw_ms, **table}))
        return 0
    print(f"\nbare append + fdatasync to a reused file: p50 {raw_ms:.3f} ms")
    titles = f"{'ours/s':>9} {'BDB/s':>9} {'ratio':>6} {'bare/s':>9} {'ours p50':>9} {'BDB p50':>9}"
    print(f"{'':14} {titles}")
    nothing = Figure(0, 0, 0)
    for name, ours in table["ours"].items():
        peer, bare = (table.get(side, {}).get(name, nothing) for side in ("BDB", "bare"))
        ratio = f"{ours.per_second / peer.per_second:.2f}" if peer.per_second else "-"
        print(
            f"{name:14} {ours.per_second:9,.0f} {peer.per_second:9,.0f} {ratio:>6}"
            f" {bare.per_second:9,.0f} {ours.p50_ms:6.3f} ms {peer.p50_ms:6.3f} ms"
        )
    one = table["ours"]["1 waiting"]
    print(f"one caller's p50 is {one.p50_ms / raw_ms:.2f} × a bare append + fdatasync")
    return 0


if __name__ == "__main__":
    sys.exit(main())
