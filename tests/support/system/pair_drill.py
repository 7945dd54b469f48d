"""Two real brokers and a witness: whoever serves is killed, frozen or stopped, under load.

The ledger is the clients' own: what was accepted to a sender must reach a receiver, whichever of
the two serves by then. Nothing is compared by what the brokers say of themselves.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from proton import Message, Timeout
from proton.utils import BlockingConnection

from sparkstore.witness.folder import FolderPlace
from sparkstore.witness.turn import sight

LEASE_S = 3.0
_LONG_S = 90.0
_TICK_S = 0.02
_SENDERS = 3


class Pair:
    """Two machines of one configuration; either serves, the other is its standby."""

    def __init__(self, folder: Path, settings: str = "", options: Sequence[str] = ()) -> None:
        self._folder, self.witness, self._options = folder, folder / "witness", options
        self.witness.mkdir()
        self._token = folder / "token"
        self._token.write_text("a token of the pair")
        self._token.chmod(0o600)
        self._settings = folder / "sparkstore.toml"
        store = f'[store]\nwitness = "{self.witness}"\nwitness_lease_s = {LEASE_S}\n'
        self._settings.write_text(store + settings)
        self.ports = [_free_port() for _ in range(2)]
        self._shipping = [_free_port() for _ in range(2)]
        self.processes: list[subprocess.Popen[bytes] | None] = [None, None]

    def start(self, number: int) -> None:
        """Start one machine, as its supervisor does after it ended."""
        arguments = [str(self.root(number)), "--config", str(self._settings)]
        arguments += ["--listen", f"127.0.0.1:{self.ports[number]}"]
        arguments += ["--standby-listen", f"127.0.0.1:{self._shipping[number]}"]
        arguments += ["--standby-of", f"tcp:127.0.0.1:{self._shipping[1 - number]}"]
        arguments += ["--token-file", str(self._token), *self._options]
        with (self._folder / f"log{number}").open("ab") as log:
            self.processes[number] = subprocess.Popen(
                [sys.executable, "-m", "broker_shim.serve.command", *arguments],
                stdout=log,
                stderr=log,
                env=os.environ | {"JAVA_TOOL_OPTIONS": ""},
            )

    def start_both(self) -> int:
        """Start a primary, then its standby, and wait until that is in step; the primary."""
        self.start(0)
        self.wait(lambda: self.holder().get("root_id"))
        self.start(1)
        return self.primary_in_step()

    def kill(self, number: int) -> None:
        """Kill one machine by `kill -9`."""
        process = self.processes[number]
        assert process is not None
        process.kill()
        process.wait()
        self.processes[number] = None

    def root(self, number: int) -> Path:
        """Return the root of a machine."""
        return self._folder / f"root{number}"

    def holder(self) -> dict[str, Any]:
        """What the witness says; nothing before anybody has served."""
        sighted = sight(FolderPlace(self.witness))
        return {} if sighted is None else asdict(sighted[0])

    def primary_in_step(self) -> int:
        """The machine that serves, once its standby has all that was confirmed."""
        self.wait(lambda: self.holder().get("in_step") and not self.holder()["is_closed"])
        return int(str(self.holder()["where"])[-1])

    def wait(self, is_so: Callable[[], object]) -> None:
        """Wait until something is so; the logs of both are shown if it does not become so."""
        ends_at = time.monotonic() + _LONG_S
        tick = threading.Event()
        while not is_so():
            if time.monotonic() > ends_at:
                logs = [self._folder / f"log{number}" for number in (0, 1)]
                raise AssertionError("\n\n".join(log.read_text()[-4000:] for log in logs))
            tick.wait(_TICK_S)

    def end(self) -> list[int]:
        """Stop both; their exit codes."""
        for process in self.processes:
            if process is not None:
                process.send_signal(signal.SIGCONT)  # one that is frozen hears nothing
                process.terminate()
        return [process.wait(_LONG_S) for process in self.processes if process is not None]


class Load:
    """Senders and a receiver that connect to whichever machine serves.

    Attributes:
        accepted: Ids of the messages that a broker accepted, in order.
        received: Ids that a receiver got.
    """

    def __init__(self, pair: Pair) -> None:
        self._pair, self._stopping = pair, threading.Event()
        self.accepted: list[str] = []
        self.received: set[str] = set()
        clients = [lambda number=number: self._send(number) for number in range(_SENDERS)]
        self._threads = [threading.Thread(target=call) for call in (*clients, self._receive)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End all clients."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(_LONG_S)

    def drain(self) -> None:
        """Receive until nothing is missing."""
        connection = self._connected()
        assert connection is not None
        receiver = connection.create_receiver("orders", credit=50)
        while not {*self.accepted} <= self.received:
            self.received.add(receiver.receive(timeout=_LONG_S).body)
            receiver.accept()
        connection.close()

    def _connected(self) -> BlockingConnection | None:
        tick = threading.Event()
        while not self._stopping.is_set() or threading.current_thread() is threading.main_thread():
            for port in self._pair.ports:
                with suppress(Exception):
                    socket.create_connection(("127.0.0.1", port), 4).close()  # cheap, if nobody is
                    return BlockingConnection(f"amqp://127.0.0.1:{port}", timeout=4)
            tick.wait(0.05)
        return None

    def _send(self, number: int) -> None:
        count = 0
        while (connection := self._connected()) is not None:
            with suppress(Exception):  # whatever happened to it: the next one has another id
                sender = connection.create_sender("orders")
                while not self._stopping.is_set():
                    count += 1
                    name = f"{number}-{count}"
                    sender.send(Message(id=name, body=name, durable=True), timeout=4)
                    self.accepted.append(name)
            # Not closed: proton would wait for a peer that is frozen.

    def _receive(self) -> None:
        while (connection := self._connected()) is not None:
            with suppress(Exception):
                receiver = connection.create_receiver("orders", credit=20)
                while not self._stopping.is_set():
                    with suppress(Timeout):  # nothing waits, or the peer is frozen: look again
                        self.received.add(receiver.receive(timeout=1).body)
                        receiver.accept()
                connection.close()


def take_over(pair: Pair, load: Load, number: signal.Signals, random_: random.Random) -> float:
    """Do that to whoever serves, and wait for the other; seconds to the first answer."""
    primary, count = pair.primary_in_step(), len(load.accepted)
    pair.wait(lambda: len(load.accepted) > count + random_.randrange(5, 200))
    process, before = pair.processes[primary], pair.holder()["root_id"]
    assert process is not None
    began = time.monotonic()
    process.send_signal(number)
    if number is not signal.SIGSTOP:
        process.wait(_LONG_S)
    pair.wait(lambda: pair.holder().get("root_id", before) != before)
    count = len(load.accepted)
    pair.wait(lambda: len(load.accepted) > count)
    took_s = time.monotonic() - began
    if number is signal.SIGSTOP:
        process.send_signal(signal.SIGCONT)
    else:
        pair.start(primary)
    return took_s


@contextmanager
def under_load(folder: Path) -> Iterator[tuple[Pair, Load]]:
    """A pair in step, and clients that send and receive all the time."""
    pair = Pair(folder)
    load = None
    try:
        pair.start_both()
        load = Load(pair)
        yield pair, load
    finally:
        if load is not None:
            load.stop()
        pair.end()


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port
