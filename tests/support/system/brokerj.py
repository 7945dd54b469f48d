"""A real Broker-J with the plugin, the store's service, and Java clients, each a process."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.support.checkout import CHECKOUT
from tests.support.system.processes import BrokerProcess

MODULE = CHECKOUT / "broker_shim" / "brokerj"
PLUGIN = MODULE / "target" / "sparkstore-brokerj.jar"
_OUTCOMES = ("READY ", "ERRORED")
"""What `BrokerProcess` says; the broker itself may print before that."""
START_S, STOP_S, CLIENT_S = 90.0, 30.0, 240.0
_JVM = ("-Xmx512m", "-XX:MaxDirectMemorySize=256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""A broker or a client lives for seconds: to compile its code well costs more than it saves."""
ROOM = ("-Xmx1500m", "-XX:MaxDirectMemorySize=1g")
"""For a JVM that handles a message of 100 MB: the last of equal options counts."""


def missing() -> str | None:
    """What this machine lacks for these tests; None if they can run."""
    lacking = [tool for tool in ("mvn", "java") if shutil.which(tool) is None]
    return f"no {' and no '.join(lacking)} on this machine" if lacking else None


def build() -> None:
    """The plugin's jar, and what a broker and its clients need, in target/.

    Skips the tests, with the reason, where that cannot be. One process at a time builds: the
    others find it up to date, and start no Maven.
    """
    if lacking := missing():
        pytest.skip(f"Broker-J: {lacking}")
    with (MODULE / "pom.xml").open() as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        if _is_up_to_date():
            return
        subprocess.run(
            ["mvn", "-q", "-B", "-f", str(MODULE / "pom.xml"), "package", "-DskipTests"],
            check=True,
            stdin=subprocess.DEVNULL,
        )


def _is_up_to_date() -> bool:
    """Nothing that the jar is made of is newer than it, and all that lies beside it is there."""
    beside = (MODULE / "target" / "lib", MODULE / "target" / "test-classes")
    if not PLUGIN.exists() or not all(folder.is_dir() for folder in beside):
        return False
    sources = [MODULE / "pom.xml", *(MODULE / "src").rglob("*")]
    return max(path.stat().st_mtime_ns for path in sources) < PLUGIN.stat().st_mtime_ns


def java(*arguments: object, plugin: Path = PLUGIN, without: str = "no jar") -> list[str]:
    """The command line of a class among the plugin, its tests and what they need.

    Args:
        arguments: Options, the class, its arguments.
        plugin: The jar of the store.
        without: Part of the name of a jar that is left out.
    """
    target = MODULE / "target"
    needed = [jar for jar in (target / "lib").iterdir() if without not in jar.name]
    classes = [plugin, target / "test-classes", *needed]
    return ["java", *_JVM, "-cp", os.pathsep.join(map(str, classes)), *map(str, arguments)]


class JavaBroker:
    """Broker-J 10.1.0 from published artifacts, one SPARKSTORE node, a port of its own.

    Args:
        work: Its work folder.
        options: For its JVM: among them the node's attributes, as context variables.
        plugin: The jar of the store.
        without: Part of the name of a jar that it lacks.
    """

    def __init__(
        self, work: Path, *options: str, plugin: Path = PLUGIN, without: str = "no jar"
    ) -> None:
        work.mkdir(exist_ok=True)
        self._log = work / "broker.log"
        with self._log.open("ab") as errors:
            self._process = subprocess.Popen(
                java(
                    *options,
                    *("sparkstore.brokerj.system.BrokerProcess", str(work), "0"),
                    plugin=plugin,
                    without=without,
                ),
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.outcome = self._first_line()

    def _first_line(self) -> str:
        alarm = threading.Timer(START_S, self._process.kill)
        alarm.start()
        assert self._process.stdout is not None
        lines = (line.strip() for line in self._process.stdout)
        said = next((line for line in lines if line.startswith(_OUTCOMES)), "ended")
        alarm.cancel()
        return said

    @property
    def port(self) -> int:
        """Of its AMQP listener."""
        assert self.outcome.startswith("READY "), f"{self.outcome}\n{self.log}"
        return int(self.outcome.split()[1])

    @property
    def url(self) -> str:
        """For proton."""
        return f"amqp://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """What it logged so far."""
        return self._log.read_text()

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._end()

    def terminate(self) -> int:
        """SIGTERM; the exit code."""
        self._process.terminate()
        return self._end()

    def _end(self) -> int:
        code = self._process.wait(STOP_S)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code


def at(socket: Path) -> str:
    """The option that says where the service is."""
    return f"-Dsparkstore.service=unix:{socket}"


class Listening(Protocol):
    """A broker that a client can connect to."""

    @property
    def port(self) -> int:
        """Of its AMQP listener."""

    @property
    def log(self) -> str:
        """What it logged so far."""


def run_client(broker: Listening, name: str, *arguments: object) -> dict[str, Any]:
    """Run a Java client to its end: what it found, a JSON object."""
    done = subprocess.run(
        java(f"sparkstore.brokerj.system.{name}", str(broker.port), *map(str, arguments)),
        capture_output=True,
        text=True,
        timeout=CLIENT_S,
        check=False,
    )
    assert done.returncode == 0, f"{name} {arguments}: {done.stderr}\n{broker.log}"
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


class Setup:
    """A root with its service and its broker; each can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.root, self.socket, self.work = folder / "root", folder / "s", folder / "work"
        self.service = self._serve()
        self.start_broker()

    def _serve(self) -> BrokerProcess:
        return BrokerProcess(str(self.root), f"--store-socket={self.socket}", "--no-amqp")

    def start_service(self) -> None:
        """After it was ended."""
        self.service = self._serve()

    def start_broker(self, *options: str, without: str = "no jar") -> None:
        """After it was ended; see `JavaBroker`."""
        self.broker = JavaBroker(self.work, at(self.socket), *options, without=without)

    def kill_and_restart(self) -> None:
        """Both, with nothing said to either."""
        self.broker.kill()
        self.service.kill()
        self.start_service()
        self.start_broker()

    def client(self, name: str, *arguments: object) -> dict[str, Any]:
        """Run a Java client to its end: what it found, a JSON object."""
        return run_client(self.broker, name, *arguments)

    def stop(self) -> None:
        """End both, broker first."""
        self.broker.terminate()
        self.service.terminate()

    def journal(self, *columns: str) -> pa.Table:
        """Columns of every record in the journal, in order."""
        table = DeltaTable(self.root / "journal")
        return table.to_pyarrow_table(columns=["position", *columns]).sort_by("position")


@contextmanager
def running(folder: Path) -> Iterator[Setup]:
    """One whose processes are killed at the end."""
    setup = Setup(folder)
    try:
        yield setup
    finally:
        setup.broker.kill()
        if setup.service.is_running:
            setup.service.kill()
