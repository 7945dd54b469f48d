"""The AMQP 1.0 listener beside the one on proton, and beside Broker-J: `make bench-amqp`.

    python -m tests.benchmarks.bench_amqp [--count N] [--rounds N] [--only NAME,…] [--json]

    send x 1, send x 8   persistent messages of 1 KiB, each settled once it is stored; so many
                         connections, each with the broker's credit
    receive              the same messages taken and accepted, 1,000 of credit, one connection
    0-10 send, receive   the same by AMQP 0-10, one connection: complete once it is stored
    idle                 memory of 1,000 connections of 10 links each, more than of none

Brokers, each a process of its own, started anew for each round, one after the other:

    ours, proton              on a root in build/: a message is settled once it is durable
    ours memory, proton memory    nothing is kept: what the listener by itself costs
    broker-j memory           Broker-J as it is published, on its memory store, which refuses
                              persistent messages: it gets others
    broker-j BDB              the same on BDB JE, of the peer's harness (../shared/peers/brokerj)
    artemis                   Apache Artemis on its journal, synced (../shared/peers/artemis)
    ours unbatched            on a root, before messages went in batches

`proton` is this repository at the last commit whose listener stood on python-qpid-proton, `ours
unbatched` at the last one whose store was asked message by message. The client is the same for all
(`amqp_load`); its processor time is printed, too. Figures are medians of the rounds, with least and
most.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

from tests.benchmarks import amqp_0_10_load
from tests.benchmarks.amqp_load import attach_idle, message, receive_all, send_all, transfers
from tests.benchmarks.machine import BUILD, append_and_sync_ms, describe, median
from tests.support.system import brokerj, qpid_server
from tests.support.system.qpid_server import QpidServer

COMMITS = {"proton": "ea91e27", "proton memory": "ea91e27", "ours unbatched": "dae9896"}
"""Brokers that are this repository as it was."""
BROKERS = (
    *("ours", "proton", "ours memory", "proton memory"),
    *("broker-j memory", "broker-j BDB", "artemis", "ours unbatched"),
)
SIZE = 1_024
_ADDRESS = re.compile(r"127\.0\.0\.1:[0-9]+")
_TICKS = os.sysconf("SC_CLK_TCK")
_NODE_TYPES = {"broker-j memory": ("Memory", "Memory"), "broker-j BDB": ("JSON", "BDB")}
"""Types of the virtual host's node, and of the virtual host."""
_PEERS = Path(os.environ.get("SPARKSTORE_PEERS", "../shared/peers"))


class Listening(NamedTuple):
    """A broker that serves."""

    port: int
    pid: int
    older_port: int = 0


class Figure(NamedTuple):
    """Messages a second; processor time of broker and client in µs a message."""

    per_second: float
    broker_us: float
    client_us: float


@contextmanager
def serving(name: str) -> Iterator[Listening]:
    """A broker of this name, with the queue `load`."""
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        if name.startswith("broker-j"):
            with _broker_j(name, Path(folder).resolve()) as listening:
                yield listening
            return
        if name == "artemis":
            with _artemis(Path(folder).resolve()) as listening:
                yield listening
            return
        where, module = ".", "broker_shim.serve.command"
        older, keeps_nothing = ["--amqp-0-10", "127.0.0.1:0"], ["--memory", "--accept-durable"]
        if name in COMMITS:
            where, module = str(_checkout(COMMITS[name])), "broker_shim.embedded.serve"
            older, keeps_nothing = [], ["--memory"]
        store = keeps_nothing if name.endswith("memory") else [str(Path(folder).resolve() / "root")]
        words = [*store, "--queue", "load", *older]
        with sparkstore_serving(words, where=where, module=module) as listening:
            yield listening


@contextmanager
def sparkstore_serving(
    words: Sequence[str], *, where: str = ".", module: str = "broker_shim.serve.command"
) -> Iterator[Listening]:
    """`sparkstore serve` with some arguments, of the checkout that is there."""
    with subprocess.Popen(
        [sys.executable, "-m", module, *words, "--listen", "127.0.0.1:0"],
        cwd=where,
        env={**os.environ, "PYTHONPATH": where},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        try:
            ports = [int(each.rpartition(":")[2]) for each in _ADDRESS.findall(ready)]
            yield Listening(ports[0], process.pid, *ports[1:])
        finally:
            process.terminate()
            process.wait(60)


@contextmanager
def _broker_j(name: str, folder: Path) -> Iterator[Listening]:
    brokerj.build()
    qpid_server.fetch()
    node_type, kind = _NODE_TYPES[name]
    if kind == "BDB":
        _add_bdb(folder / "lib" / "opt")
    node = {
        "name": "default",
        "type": node_type,
        "defaultVirtualHostNode": True,
        "virtualHostInitialConfiguration": json.dumps({"type": kind, "name": "default"}),
    }
    server = QpidServer(folder, folder / "work", [node])
    try:
        load = {"name": "load", "durable": kind == "BDB"}
        server.ask("POST", "/api/latest/queue/default/default", load)
        yield Listening(server.port, server.pid, server.port)
    finally:
        server.kill()


def _add_bdb(where: Path) -> None:
    """The jars of that store, which the peer's harness names and the broker as published lacks."""
    harness = _built_peer("brokerj", "package", "-DskipTests")
    where.mkdir(parents=True)
    for jar in (harness / "target" / "lib").glob("*"):
        if jar.name.startswith(("je-", "qpid-bdbstore-")) or "bdb" in jar.name:
            shutil.copy(jar, where)


def _built_peer(name: str, *goals: str) -> Path:
    """The harness of a peer, built once in build/."""
    harness = BUILD.resolve() / "peers" / name
    if not (harness / "target" / "lib").is_dir():
        shutil.copytree(_PEERS / name, harness, dirs_exist_ok=True)
        for path in (harness, *harness.rglob("*")):  # it may be read-only where it comes from
            path.chmod(path.stat().st_mode | stat.S_IWUSR)
        words = ["mvn", "-q", "-B", "-f", str(harness / "pom.xml"), *goals]
        subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
    return harness


@contextmanager
def _artemis(folder: Path) -> Iterator[Listening]:
    copied = ("dependency:copy-dependencies", "-DoutputDirectory=target/lib")
    target = _built_peer("artemis", "package", *copied) / "target"
    native = "lib/linux-x86_64/"
    with ZipFile(next((target / "lib").glob("activemq-artemis-native-*.jar"))) as jar:
        jar.extractall(folder, [each for each in jar.namelist() if each.startswith(native)])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    java = ["java", "-Xmx2g", f"-Djava.library.path={folder / native}"]
    classes = ["-cp", f"{target / 'classes'}:{target / 'lib'}/*", "bench.Serve"]
    with subprocess.Popen(
        [*java, *classes, "ASYNCIO", str(folder / "store"), str(port), "load"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "READY\n", "Artemis did not start"
        try:
            yield Listening(port, process.pid)
        finally:
            process.kill()


def _checkout(commit: str) -> Path:
    """The repository as it was, in build/."""
    where = (BUILD / f"listener-{commit}").resolve()
    if not where.is_dir():
        unpacked = where.with_suffix(".new")
        shutil.rmtree(unpacked, ignore_errors=True)
        unpacked.mkdir()
        archive = ["git", "archive", commit, "broker_shim", "sparkstore", "conf"]
        with subprocess.Popen(archive, stdout=subprocess.PIPE) as packed:
            subprocess.run(["tar", "-x", "-C", unpacked], stdin=packed.stdout, check=True)
        assert packed.returncode == 0, f"git has no {commit}"
        unpacked.rename(where)
    return where


def measure(broker: Listening, count: int, streams: dict[int, list[bytes]]) -> dict[str, Figure]:
    """Each phase once, after a warm-up of each."""
    warm = count // 10
    send_all(broker.port, "load", [streams[1][0][: len(streams[1][0]) // count * warm]], warm)
    receive_all(broker.port, "load", warm)
    figures: dict[str, Figure] = {}
    for senders, prepared in streams.items():
        share = count // senders
        with _timed(broker, figures, f"send x {senders}", count) as took:
            took.append(send_all(broker.port, "load", prepared, share))
    # What was sent is taken in as many parts as it was sent in.
    with _timed(broker, figures, "receive", count) as took:
        took.append(receive_all(broker.port, "load", count))
    if broker.older_port:
        _measure_older(broker, count, figures)
    return figures


def _measure_older(broker: Listening, count: int, figures: dict[str, Figure]) -> None:
    """The same by AMQP 0-10, one connection."""
    stream = amqp_0_10_load.transfers(count, SIZE, "load")
    warm = count // 10
    amqp_0_10_load.send(broker.older_port, stream[: len(stream) // count * warm], warm)
    amqp_0_10_load.receive(broker.older_port, "load", warm)
    with _timed(broker, figures, "0-10 send x 1", count) as took:
        took.append(amqp_0_10_load.send(broker.older_port, stream, count))
    with _timed(broker, figures, "0-10 receive", count) as took:
        took.append(amqp_0_10_load.receive(broker.older_port, "load", count))


@contextmanager
def _timed(
    broker: Listening, figures: dict[str, Figure], phase: str, count: int
) -> Iterator[list[float]]:
    took: list[float] = []
    before, ours = cpu_s(broker.pid), time.process_time()
    yield took
    used, client = cpu_s(broker.pid) - before, time.process_time() - ours
    figures[phase] = Figure(count / took[0], used / count * 1e6, client / count * 1e6)


def cpu_s(pid: int) -> float:
    """Processor time of a process so far, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def idle_mib(name: str, connections: int, links: int) -> float:
    """MiB of a broker with so many idle connections, more than with none."""
    with serving(name) as broker:
        send_all(broker.port, "load", [transfers(10, message(SIZE))], 10)
        before = resident_mib(broker.pid)
        peers = [attach_idle(broker.port, links, "load") for _ in range(connections)]
        more = resident_mib(broker.pid) - before
        for peer in peers:
            peer.socket.close()
    return more


def resident_mib(pid: int) -> float:
    """Memory of a process, in MiB."""
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=20_000, help="a multiple of 80")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(BROKERS))
    parser.add_argument("--no-idle", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    names = [name for name in BROKERS if name in options.only.split(",")]
    if lacking := brokerj.missing():
        print(f"Broker-J and Artemis: skipped, {lacking}", file=sys.stderr)
        names = [name for name in names if name not in {*_NODE_TYPES, "artemis"}]
    for name, peer in (("broker-j BDB", "brokerj"), ("artemis", "artemis")):
        if name in names and not (_PEERS / peer).is_dir():
            print(f"{name}: skipped, there is no {_PEERS / peer}", file=sys.stderr)
            names.remove(name)
    count: int = options.count
    streams = {
        durable: {n: [transfers(count // n, message(SIZE, durable=durable))] * n for n in (1, 8)}
        for durable in (True, False)
    }
    found: dict[tuple[str, str], list[Figure]] = defaultdict(list)
    for _ in range(options.rounds):
        for name in names:
            with serving(name) as broker:
                prepared = streams[name != "broker-j memory"]
                for phase, figure in measure(broker, count, prepared).items():
                    found[name, phase].append(figure)
    _print(found, {} if options.no_idle else _idle(names), as_json=options.json)


def _idle(names: list[str]) -> dict[str, float]:
    own = [name for name in names if name in {"ours memory", "proton memory"}]
    return {name: idle_mib(name, 1_000, 10) for name in own}


def _ratios(found: dict[tuple[str, str], list[Figure]]) -> dict[str, float]:
    """AMQP 0-10 beside AMQP 1.0 of the same broker in the same rounds."""
    rates = {key: median([each.per_second for each in figures]) for key, figures in found.items()}
    return {
        f"{phase} of {name} beside its 1.0": round(rate / rates[name, phase[5:]], 2)
        for (name, phase), rate in sorted(rates.items())
        if phase.startswith("0-10 ")
    }


def _print(
    found: dict[tuple[str, str], list[Figure]], idle: dict[str, float], *, as_json: bool
) -> None:
    synced_ms = median(append_and_sync_ms(BUILD, SIZE))
    print(f"{describe()}; append + fdatasync of 1 KiB {synced_ms:.2f} ms", file=sys.stderr)
    told: dict[str, list[float]] = {}
    for (name, phase), figures in sorted(found.items(), key=lambda each: each[0][1]):
        rates = [figure.per_second for figure in figures]
        broker_us = median([figure.broker_us for figure in figures])
        client_us = median([figure.client_us for figure in figures])
        told[f"{phase} {name}"] = [round(median(rates)), round(broker_us, 1)]
        line = f"{phase:13} {name:16} {median(rates):>9,.0f} a second"
        spread = f"({min(rates):,.0f} to {max(rates):,.0f})"
        line += f" {spread:22} broker {broker_us:5.1f} µs, client {client_us:4.1f} µs a message"
        print(line, file=sys.stderr)
    for phase, figures in _ratios(found).items():
        told[phase] = [figures]
        print(f"{phase}: {figures:.2f}", file=sys.stderr)
    for name, mib in idle.items():
        told[f"idle {name}"] = [round(mib)]
        print(f"idle       {name:16} {mib:9.0f} MiB for 1,000 x 10 links", file=sys.stderr)
    if as_json:
        print(json.dumps(told))


if __name__ == "__main__":
    main()
