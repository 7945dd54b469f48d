"""Broker-J on this store beside Broker-J on BDB JE and Derby: `make bench-brokerj`.

    python -m jobs.benchmarks.bench_brokerj [--n N] [--rounds N] [--size BYTES] [--clients]

The peer's harness (../shared/peers/brokerj, copied to build/) drives Broker-J's `MessageStore` with
no network, or with `--clients` a broker with Qpid JMS producers and a consumer. Each round runs
every store once, one after the other, each on an empty folder; figures are medians of the rounds,
with least and most. Ours is the plugin's jar and one service process, started anew for each round.
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
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from jobs.benchmarks.machine import BUILD, append_and_sync_ms, describe, median

PEER = Path(os.environ.get("SPARKSTORE_PEERS", "../shared/peers")) / "brokerj"
MODULE = Path("broker_shim/brokerj")
STORES = ("sparkstore", "BDB", "DERBY")
_LINE = re.compile(
    r"RESULT (?:\S+ +)?(?P<phase>enqueue\+commit\S*|dequeue\S+|jms \w+) +"
    r"(?:T=(?P<threads>\d+)|producers=(?P<producers>\d+))? *n=\d+ +(?:size=\d+ +)?"
    r"(?P<rate>\d+) msg/s(?: +p50=(?P<p50>[\d.]+) ms +p99=(?P<p99>[\d.]+) ms)?"
)
_JVM = ("-Xmx1g", "-Dderby.stream.error.file=/dev/null")
PORT = 15690


class Figure(NamedTuple):
    """Messages a second; p50 and p99 of one commit, or send, in ms, 0 if it has none."""

    per_second: float
    p50_ms: float
    p99_ms: float


def figures_of(printed: str) -> dict[str, Figure]:
    """What the harness printed, by phase; its warm-up, labelled with ~, is left out."""
    figures: dict[str, Figure] = {}
    for line in printed.splitlines():
        match = _LINE.search(line)
        if match is None or "~" in line:
            continue
        callers = match["threads"] or match["producers"]
        is_async = "Async" in match["phase"]
        phase = match["phase"] if is_async or not callers else f"{match['phase']} x {callers}"
        figures[phase] = Figure(
            float(match["rate"]), float(match["p50"] or 0), float(match["p99"] or 0)
        )
    return figures


class Bench:
    """Where things are, and how big."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._n, self._size = arguments.n, arguments.size
        self._harness = BUILD / "peers" / "brokerj"
        shutil.copytree(PEER, self._harness, dirs_exist_ok=True)
        for pom in (self._harness, MODULE):
            words = ["mvn", "-q", "-B", "-f", str(pom / "pom.xml"), "package", "-DskipTests"]
            subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
        target = self._harness / "target"
        jar = MODULE / "target" / "sparkstore-brokerj.jar"
        self._path = os.pathsep.join(map(str, (target / "classes", target / "lib" / "*", jar)))

    def add_to_path(self, classes: Path) -> None:
        """More classes for the JVMs."""
        self._path = os.pathsep.join((self._path, str(classes)))

    def store(self, name: str, folder: Path) -> dict[str, Figure]:
        """The `MessageStore` alone."""
        with self._node(name, folder) as (options, kind, node):
            words = [kind, str(folder / "work"), str(self._n), str(self._size), "1,8,32", node]
            return figures_of(self._java(options, "bench.StoreBench", words))

    def clients(self, name: str, folder: Path) -> dict[str, Figure]:
        """Qpid JMS on a broker: 1 and 8 producers, then a consumer."""
        with (
            self._node(name, folder) as (options, kind, node),
            self._broker(options, [kind, str(folder / "work"), str(PORT), node]),
        ):
            url = f"amqp://127.0.0.1:{PORT}?amqp.saslMechanisms=ANONYMOUS"
            figures: dict[str, Figure] = {}
            for queue, producers, count in (
                ("warm", 1, 500),
                ("q1", 1, self._n),
                ("q8", 8, self._n),
            ):
                words = ["roundtrip", url, queue, str(producers), str(count), str(self._size)]
                printed = self._java((), "bench.JmsBench", words)
                if queue != "warm":
                    sent = figures_of(printed)
                    figures |= {
                        f"{phase} after x {producers}" if "receive" in phase else phase: figure
                        for phase, figure in sent.items()
                    }
            return figures

    def _java(self, options: tuple[str, ...], main: str, words: list[str]) -> str:
        done = subprocess.run(
            ["java", *_JVM, *options, "-cp", self._path, main, *words],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.exit(f"{main} {words} failed: {done.stderr[-2000:]}")
        return done.stdout

    @contextmanager
    def _node(self, name: str, folder: Path) -> Iterator[tuple[tuple[str, ...], str, str]]:
        """Options of the JVM, type of the virtual host, type of its node; our service runs."""
        if name != "sparkstore":
            yield (), name, "JSON"
            return
        socket, config = folder / "service.sock", folder / "store.toml"
        settings = ("--config", str(config)) if config.exists() else ()
        service = subprocess.Popen(
            [
                *(sys.executable, "-m", "sparkstore", "serve", str(folder / "root")),
                *(f"--store-socket={socket}", "--no-amqp", *settings),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            _until(socket.exists)
            yield (f"-Dsparkstore.service=unix:{socket}",), "ProvidedStore", "SPARKSTORE"
        finally:
            service.terminate()
            service.wait(60)

    @contextmanager
    def _broker(self, options: tuple[str, ...], words: list[str]) -> Iterator[None]:
        broker = subprocess.Popen(
            ["java", *_JVM, *options, "-cp", self._path, "bench.EmbeddedBroker", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert broker.stdout is not None
        try:
            if not any("READY" in line for line in broker.stdout):
                sys.exit(f"the broker did not start: {words}")
            yield
        finally:
            broker.terminate()
            broker.wait(60)
            broker.stdout.close()


def _until(holds: object, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not holds():  # type: ignore[operator]
        if time.monotonic() > end:
            sys.exit("the service did not start")
        time.sleep(0.05)


Rounds = dict[str, dict[str, list[Figure]]]


def table(rounds: Rounds) -> Iterator[str]:
    """Each store's figures, a phase a line; ratios are ours against it."""
    ours = medians(rounds)[STORES[0]] if STORES[0] in rounds else {}
    for name, phases in rounds.items():
        for phase, figures in phases.items():
            middle, known = medians(rounds)[name][phase], ours.get(phase)
            yield (
                f"{phase:28} {name:10} {_spread([f.per_second for f in figures], 0)}/s"
                f" p50 {_spread([f.p50_ms for f in figures], 3)} ms"
            ) + (
                f" (ours: rate x {known.per_second / middle.per_second:.2f},"
                f" p50 x {known.p50_ms / (middle.p50_ms or 1):.2f})"
                if known is not None and name != STORES[0]
                else ""
            )


def _spread(values: list[float], digits: int) -> str:
    return f"{median(values):8.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def medians(rounds: Rounds) -> dict[str, dict[str, Figure]]:
    """Of each figure the middle of its rounds."""
    return {
        name: {
            phase: Figure(*(median(values) for values in zip(*figures, strict=True)))
            for phase, figures in phases.items()
        }
        for name, phases in rounds.items()
    }


def main() -> None:
    """Run the rounds and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--stores", nargs="*", default=STORES)
    parser.add_argument("--clients", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    bench = Bench(arguments)
    bare = median(append_and_sync_ms(BUILD, arguments.size))
    sys.stderr.write(f"{describe()}; bare append + fdatasync {bare:.3f} ms\n")
    rounds: Rounds = {name: defaultdict(list) for name in arguments.stores}
    run = bench.clients if arguments.clients else bench.store
    for number in range(arguments.rounds):
        for name in arguments.stores:
            with tempfile.TemporaryDirectory(dir=BUILD) as folder:
                for phase, figure in run(name, Path(folder).absolute()).items():
                    rounds[name][phase].append(figure)
            sys.stderr.write(f"round {number + 1} of {arguments.rounds}: {name}\n")
    if arguments.json:
        print(json.dumps(medians(rounds)))
    for line in table(rounds):
        sys.stderr.write(line + "\n")


if __name__ == "__main__":
    main()
