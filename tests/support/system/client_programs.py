"""The client programs of `programs/` as processes: built once, told what to do line by line."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.checkout import CHECKOUT
from tests.support.system import brokerj
from tests.support.system.forwarder import Forwarder
from tests.support.system.processes import BrokerProcess

SOURCES = CHECKOUT / "tests" / "system" / "programs"
BUILT = CHECKOUT / "build" / "clients"
OLDEST_GO = (1, 21)
"""Since then a Go fetches the version that a module asks for."""
OLDEST_RUST = (1, 85)
"""What fe2o3-amqp asks for."""
ANSWER_S = 60.0
"""More than any program waits for its broker: its own error says more than ours."""

Told = dict[str, Any]


class Language(NamedTuple):
    """How a program is made and run.

    Attributes:
        tools: What the machine needs for it.
        build: Makes it, below `BUILT`.
        command: The command line.
        environment: What to add to the environment.
    """

    tools: tuple[str, ...]
    build: Callable[[], None]
    command: Sequence[object]
    environment: dict[str, str]


def _nothing() -> None:
    """Python needs no building."""


def install_node_packages() -> None:
    """Install what programs in JavaScript need, and axe-core, as the lock has them."""
    lock = (SOURCES / "node" / "package-lock.json").read_text()
    installed = BUILT / "node"
    stamp = installed / "installed.json"
    if stamp.exists() and stamp.read_text() == lock:
        return
    installed.mkdir(exist_ok=True, parents=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(SOURCES / "node" / name, installed)
    _run("npm", "ci", "--no-audit", "--no-fund", "--loglevel=error", cwd=installed)
    stamp.write_text(lock)


def _build_go() -> None:
    _run("go", "build", "-o", BUILT / "goclient", ".", cwd=SOURCES / "go")


def _build_rust() -> None:
    into = ("--target-dir", BUILT / "rust")
    _run("cargo", "build", "--quiet", "--locked", *into, cwd=SOURCES / "rust")


def _compile_java() -> None:
    pom, libraries = brokerj.MODULE / "pom.xml", brokerj.MODULE / "target" / "lib"
    if not _is_newer(libraries, [pom]):
        brokerj.build()
    sources = sorted((SOURCES / "java").glob("*.java"))
    if _is_newer(BUILT / "java" / "Client.class", [*sources, libraries]):
        return
    into = ("--release", "17", "-d", BUILT / "java", "-cp", libraries / "*")
    _run("javac", "-Xlint:all,-serial,-processing", "-Werror", *into, *sources, cwd=BUILT)


def _is_newer(made: Path, sources: Sequence[Path]) -> bool:
    """True if it is there and none of these was changed after it was made."""
    return made.exists() and made.stat().st_mtime >= max(s.stat().st_mtime for s in sources)


def _run(*command: object, cwd: Path) -> None:
    subprocess.run([*map(str, command)], check=True, cwd=cwd, stdin=subprocess.DEVNULL)


_JAVA_CLASSES = os.pathsep.join(
    map(str, (BUILT / "java", brokerj.MODULE / "target" / "lib" / "*", SOURCES / "java"))
)
LANGUAGES = {
    "proton": Language((), _nothing, (sys.executable, SOURCES / "proton_client.py"), {}),
    "rhea": Language(
        ("node", "npm"),
        install_node_packages,
        ("node", SOURCES / "node" / "client.js"),
        {"NODE_PATH": str(BUILT / "node" / "node_modules")},
    ),
    "go-amqp": Language(("go",), _build_go, (BUILT / "goclient",), {}),
    "fe2o3-amqp": Language(("cargo",), _build_rust, (BUILT / "rust" / "debug" / "rustclient",), {}),
    "jms": Language(
        ("mvn", "java", "javac"),
        _compile_java,
        ("java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", _JAVA_CLASSES, "Client"),
        {},
    ),
}
CLIENTS = tuple(LANGUAGES)


class Program:
    """A client in a process of its own.

    Raises:
        AssertionError: From every command: the client could not do it; what it said.
    """

    def __init__(self, name: str, answer_s: float = ANSWER_S, **environment: str) -> None:
        self.name = name
        self._answer_s = answer_s
        language = LANGUAGES[name]
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed by `end`
        self._process = subprocess.Popen(
            [*map(str, language.command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**os.environ, **language.environment, **environment},
        )

    def connect(self, broker: BrokerProcess | Forwarder, **options: Any) -> None:
        """Open its connection; to a forwarder, one that the library itself opens again.

        Args:
            broker: Where to.
            options: `ca`, `certificate`, `key`, `mechanism`, `user`, `password`; of some clients
                `transacted`, all it does is in a transaction, and `prefetch`.
        """
        again = {"reconnect": True} if isinstance(broker, Forwarder) else {}
        told = {
            name: value if isinstance(value, bool | int) else str(value)
            for name, value in options.items()
        }
        self.tell("connect", host="127.0.0.1", port=broker.port, **again, **told)

    def disconnect(self) -> None:
        """Close its connection, whatever state that is in."""
        self.tell("disconnect")

    def send(self, address: str, *messages: Told) -> list[str]:
        """What became of each: "accepted", or "rejected" and why as far as the client knows."""
        outcomes: list[str] = self.tell("send", address=address, messages=messages)["outcomes"]
        return outcomes

    def open(self, address: str, count: int = 1, **options: Any) -> None:
        """Open a receiver with credit for just so many messages; of JMS, of a `subscription`."""
        self.tell("open", address=address, count=count, **options)

    def wait(self, count: int = 1) -> list[Told]:
        """So many messages, which it holds until `settle` or `disconnect`."""
        messages: list[Told] = self.tell("receive", count=count)["messages"]
        return messages

    def receive(self, address: str, count: int = 1) -> list[Told]:
        """Open a receiver and wait for what comes."""
        self.open(address, count)
        return self.wait(count)

    def settle(self, *outcomes: str) -> None:
        """Decide on what it holds, in order, then let the receiver go."""
        self.tell("settle", outcomes=outcomes)

    def take(self, address: str, count: int = 1) -> list[Told]:
        """Receive and accept."""
        messages = self.receive(address, count)
        self.settle(*["accept"] * count)
        return messages

    def commit(self) -> str:
        """Commit its transaction and begin another: "committed", or why not."""
        outcome: str = self.tell("commit")["outcome"]
        return outcome

    def rollback(self) -> None:
        """Roll its transaction back and begin another."""
        self.tell("rollback")

    def move(self, source: str, *targets: str, batch: int, wait_ms: int) -> Told:
        """Take texts off a queue and send each to others, `batch` of them in one transaction.

        Until none comes for `wait_ms`, or the broker is gone: what it was told is committed.
        """
        return self.tell("move", **{"from": source}, to=targets, batch=batch, wait_ms=wait_ms)

    def end(self) -> None:
        """Kill it; nothing of it is needed any more."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def tell(self, do: str, **arguments: Any) -> Told:
        """Do a command of programs/README.md."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self._process.stdin.flush()
        alarm = threading.Timer(self._answer_s, self._process.kill)
        alarm.start()
        line = self._process.stdout.readline()
        alarm.cancel()
        answer: Told = json.loads(line) if line else {"error": "it ended or gave no answer"}
        if "error" in answer:
            self._errors.seek(0)
            said = self._errors.read()
            message = f"{self.name} could not {do} {arguments}: {answer['error']}\n{said}"
            raise AssertionError(message)
        return answer


@cache
def build(name: str) -> None:
    """Make a program, one process at a time; skip the test, with the reason, if a tool lacks."""
    language = LANGUAGES[name]
    if lacking := [tool for tool in language.tools if shutil.which(tool) is None]:
        pytest.skip(f"{name}: no {' and no '.join(lacking)} on this machine")
    if "go" in language.tools and _version("go", "env", "GOVERSION") < OLDEST_GO:
        pytest.skip(f"{name}: this Go is too old to fetch the one that go-amqp needs")
    if "cargo" in language.tools and _version("cargo", "--version") < OLDEST_RUST:
        pytest.skip(f"{name}: this Rust is too old for it")
    BUILT.mkdir(parents=True, exist_ok=True)
    with (BUILT / "lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        language.build()


def _version(*command: str) -> tuple[int, ...]:
    """Of a tool that is installed, by what it says of itself: (1, 26)."""
    said = subprocess.run([*command], capture_output=True, text=True, check=True)
    return tuple(int(number) for number in re.findall(r"\d+", said.stdout)[:2])


class Programs:
    """Each program once, started and connected when it is first asked for."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._running: dict[str, Program] = {}

    def __getitem__(self, name: str) -> Program:
        if name not in self._running:
            build(name)
            self._running[name] = Program(name)
            self._running[name].connect(self._broker)
        return self._running[name]

    def move(self, broker: BrokerProcess) -> None:
        """Connect all of them to another broker."""
        self._broker = broker
        for program in self._running.values():
            program.disconnect()
            program.connect(broker)

    def end(self) -> None:
        """End every one."""
        for program in self._running.values():
            program.end()


@contextmanager
def programs(broker: BrokerProcess) -> Iterator[Programs]:
    """Connected to a broker; ended at the end."""
    running = Programs(broker)
    try:
        yield running
    finally:
        running.end()
