"""A real Broker-J with the plugin, the store's service, and Java clients, each a process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from tests.system.conftest import CHECKOUT, BrokerProcess

MODULE = CHECKOUT / "broker_shim" / "brokerj"
START_S, STOP_S, CLIENT_S = 90.0, 30.0, 240.0
_JVM = ("-Xmx512m", "-XX:MaxDirectMemorySize=256m")


def missing() -> str | None:
    """What this machine lacks for these tests; None if they can run."""
    lacking = [tool for tool in ("mvn", "java") if shutil.which(tool) is None]
    return f"no {' and no '.join(lacking)} on this machine" if lacking else None


def build() -> None:
    """The plugin's jar, and what a broker and its clients need, in target/."""
    subprocess.run(
        ["mvn", "-q", "-B", "-f", str(MODULE / "pom.xml"), "package", "-DskipTests"],
        check=True,
        stdin=subprocess.DEVNULL,
    )


def java(*arguments: object) -> list[str]:
    """The command line of a class among the plugin, its tests and what they need."""
    target = MODULE / "target"
    classes = [target / "sparkstore-brokerj.jar", target / "test-classes", target / "lib" / "*"]
    return ["java", *_JVM, "-cp", os.pathsep.join(map(str, classes)), *map(str, arguments)]


class JavaBroker:
    """Broker-J 10.1.0 from published artifacts, one SPARKSTORE node, a port of its own."""

    def __init__(self, work: Path, socket: Path, *options: str) -> None:
        work.mkdir(exist_ok=True)
        self._log = work / "broker.log"
        with self._log.open("ab") as errors:
            self._process = subprocess.Popen(
                java(
                    f"-Dsparkstore.service=unix:{socket}",
                    *options,
                    *("sparkstore.brokerj.system.BrokerProcess", str(work), "0"),
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
        line = self._process.stdout.readline().strip()
        alarm.cancel()
        return line

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


class Setup:
    """A root with its service and its broker; each can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.root, self.socket, self.work = folder / "root", folder / "s", folder / "work"
        self.service = self._serve()
        self.broker = JavaBroker(self.work, self.socket)

    def _serve(self) -> BrokerProcess:
        return BrokerProcess(str(self.root), f"--store-socket={self.socket}", "--no-amqp")

    def start_service(self) -> None:
        """After it was ended."""
        self.service = self._serve()

    def start_broker(self, *options: str) -> None:
        """After it was ended."""
        self.broker = JavaBroker(self.work, self.socket, *options)

    def client(self, name: str, *arguments: object) -> dict[str, Any]:
        """Run a Java client to its end: what it found, a JSON object."""
        done = subprocess.run(
            self._client_command(name, arguments),
            capture_output=True,
            text=True,
            timeout=CLIENT_S,
            check=False,
        )
        assert done.returncode == 0, f"{name} {arguments}: {done.stderr}\n{self.broker.log}"
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    def _client_command(self, name: str, arguments: tuple[object, ...]) -> list[str]:
        return java(
            f"sparkstore.brokerj.system.{name}", str(self.broker.port), *map(str, arguments)
        )

    def stop(self) -> None:
        """End both, broker first."""
        self.broker.terminate()
        self.service.terminate()

    def journal(self, *columns: str) -> pa.Table:
        """Columns of every record in the journal, in order."""
        table = DeltaTable(self.root / "journal")
        return table.to_pyarrow_table(columns=["position", *columns]).sort_by("position")
