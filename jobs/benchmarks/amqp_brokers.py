"""The brokers that `bench_amqp` measures beside each other, each a process of its own.

Broker-J and Artemis are built by Maven from what SPARKSTORE_PEERS names (../shared/peers), once, in
build/. A broker that this machine cannot have is skipped, and the reason is told.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

from jobs.benchmarks.machine import BUILD
from tests.support.system import brokerj, qpid_server
from tests.support.system.qpid_server import QpidServer

COMMITS = {"proton": "ea91e27", "proton memory": "ea91e27", "ours unbatched": "dae9896"}
"""Brokers that are this repository as it was."""
BROKERS = (
    *("ours", "proton", "ours memory", "proton memory"),
    *("broker-j memory", "broker-j BDB", "artemis", "ours unbatched"),
)
_ADDRESS = re.compile(r"127\.0\.0\.1:[0-9]+")
_NODE_TYPES = {"broker-j memory": ("Memory", "Memory"), "broker-j BDB": ("JSON", "BDB")}
"""Types of the virtual host's node, and of the virtual host."""
_PEERS = Path(os.environ.get("SPARKSTORE_PEERS", "../shared/peers"))


class Listening(NamedTuple):
    """A broker that serves."""

    port: int
    pid: int
    older_port: int = 0


def available(names: Sequence[str]) -> list[str]:
    """The brokers among these that this machine has or can build; tells of each other why not."""
    brokers = []
    for name in names:
        reason = _lacking(name)
        if reason is None:
            brokers.append(name)
        else:
            print(f"{name}: skipped, {reason}", file=sys.stderr)
    return brokers


def _lacking(name: str) -> str | None:
    """Why this machine cannot have a broker; None if it has it, or has just built it."""
    needs = _PARTS.get(name, ())
    if needs and (reason := brokerj.missing()):
        return reason
    commit = COMMITS.get(name, "HEAD")
    known = subprocess.run(
        ["git", "cat-file", "-e", commit], check=False, stderr=subprocess.DEVNULL
    )
    if known.returncode:
        return f"git has no {commit}"
    for peer, build in needs:
        if peer and not (_PEERS / peer).is_dir():
            return f"there is no {_PEERS / peer}: set SPARKSTORE_PEERS to the folder of peers"
        try:
            build()
        except subprocess.CalledProcessError as error:
            return (
                f"Maven could not build it (exit code {error.returncode}): are its jars in reach?"
            )
    return None


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
            where, module = str(checkout(COMMITS[name])), "broker_shim.embedded.serve"
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
            ports = [int(address.rpartition(":")[2]) for address in _ADDRESS.findall(ready)]
            yield Listening(ports[0], process.pid, *ports[1:])
        finally:
            process.terminate()
            process.wait(60)


@contextmanager
def _broker_j(name: str, folder: Path) -> Iterator[Listening]:
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
    harness = _bdb()
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
        subprocess.run(words, check=True, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    return harness


def _bdb() -> Path:
    return _built_peer("brokerj", "package", "-DskipTests")


def _built_artemis() -> Path:
    copied = ("dependency:copy-dependencies", "-DoutputDirectory=target/lib")
    return _built_peer("artemis", "package", *copied)


_BROKER_J: tuple[tuple[str, Callable[[], object]], ...] = (
    ("", brokerj.build),
    ("", qpid_server.fetch),
)
_PARTS: dict[str, tuple[tuple[str, Callable[[], object]], ...]] = {
    "broker-j memory": _BROKER_J,
    "broker-j BDB": (*_BROKER_J, ("brokerj", _bdb)),
    "artemis": (("artemis", _built_artemis),),
}
"""What a broker is built of: the folder of a peer, if it is one, and what builds it."""


@contextmanager
def _artemis(folder: Path) -> Iterator[Listening]:
    target = _built_artemis() / "target"
    native = "lib/linux-x86_64/"
    with ZipFile(next((target / "lib").glob("activemq-artemis-native-*.jar"))) as jar:
        jar.extractall(folder, [entry for entry in jar.namelist() if entry.startswith(native)])
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


def checkout(commit: str) -> Path:
    """The repository as it was, in build/."""
    words = ["git", "rev-parse", "--short", commit]
    commit = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
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
