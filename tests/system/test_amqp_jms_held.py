"""Async accept: Qpid JMS hears of a send and of a commit when the disk has them, and not before.

The log's group is written and held before its fdatasync; meanwhile the client's call waits, while
the broker goes on for others. What the client acknowledges it settles itself in AMQP 1.0 and waits
for nobody: of that only `tests/unit/broker_shim/listener_1_0/test_told_when_durable.py` tells. In
AMQP 0-10 an acknowledge is a command like any other, and the old client's call waits for it.
"""

from __future__ import annotations

import os
import queue
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from broker_shim.amqp_0_10 import commands as c
from broker_shim.framing.frames import PROTOCOL_HEADER
from broker_shim.listener_0_10.host import Amqp010Listener
from broker_shim.listener_1_0.host import Amqp10Listener
from broker_shim.sockets.shared_port import SharedPort
from sparkstore.log import start
from tests.support.amqp.amqp_0_10 import content
from tests.support.stores.controls import ServedRoot
from tests.support.stores.stores import TIMEOUT_S
from tests.support.system import brokerj
from tests.support.system.clients import connected
from tests.support.system.old_client import OldClient

pytestmark = [pytest.mark.system, pytest.mark.slow]
if reason := brokerj.missing():
    pytestmark.append(pytest.mark.skip(reason=reason))

STEPS = ("send", "commit")
OLD_STEPS = ("send", "acknowledge", "commit")


class Gate:
    """Where a group waits that is written and not synced."""

    def __init__(self) -> None:
        self._open, self._reached = threading.Event(), threading.Event()
        self._open.set()

    def write(self, descriptor: int, buffers: list[bytes], offset: int) -> int:
        """As `sync_write`, in two calls."""
        written = os.pwritev(descriptor, buffers, offset)
        if not self._open.is_set():
            self._reached.set()
            assert self._open.wait(TIMEOUT_S)
        os.fdatasync(descriptor)
        return written

    @contextmanager
    def held(self) -> Iterator[None]:
        """No sync begins meanwhile."""
        self._reached.clear()
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()

    def wait_reached(self) -> None:
        """Until a group is written and waits."""
        assert self._reached.wait(TIMEOUT_S)


class Lines:
    """What a client says, line by line."""

    def __init__(self, output: IO[str]) -> None:
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, args=[output], daemon=True).start()

    def _read(self, output: IO[str]) -> None:
        for line in output:
            if line.startswith(("ready ", "done ")):  # its libraries may print, too
                self._lines.put(line.strip())
        self._lines.put("ended")

    def next(self) -> str:
        """Wait for one."""
        return self._lines.get(timeout=brokerj.CLIENT_S)

    @property
    def is_silent(self) -> bool:
        """True if there is none that was not read."""
        return self._lines.empty()


def of_both_protocols(host: Amqp10Listener) -> SharedPort:
    return SharedPort({PROTOCOL_HEADER[:5]: Amqp010Listener(host.broker)}, host)


@pytest.mark.parametrize(("program", "steps"), [("JmsSteps", STEPS), ("OldJmsSteps", OLD_STEPS)])
def test_the_calls_of_qpid_jms_wait_for_the_fdatasync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, steps: tuple[str, ...]
) -> None:
    brokerj.build()
    gate = Gate()
    monkeypatch.setattr(start, "sync_write", gate.write)
    broker = ServedRoot(tmp_path / "root", port_of=of_both_protocols)
    url = f"amqp://127.0.0.1:{broker.port}"
    client = subprocess.Popen(
        brokerj.java(f"sparkstore.brokerj.system.{program}", broker.port, "held", *steps),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with client:
        assert client.stdin is not None
        assert client.stdout is not None
        lines = Lines(client.stdout)
        for step in steps:
            assert lines.next() == f"ready {step}"
            with gate.held():
                client.stdin.write("go\n")
                client.stdin.flush()
                gate.wait_reached()
                with connected(url):  # the broker goes on, and answers others
                    assert lines.is_silent
                released_ns = time.monotonic_ns()
            said, what, at_ns = lines.next().split()
            assert (said, what) == ("done", step)
            assert int(at_ns) > released_ns
    assert client.returncode == 0
    broker.stop()


def test_a_transfer_an_accept_and_a_commit_of_0_10_wait_for_the_fdatasync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    monkeypatch.setattr(start, "sync_write", gate.write)
    broker = ServedRoot(tmp_path / "root", port_of=of_both_protocols)
    url = f"amqp://127.0.0.1:{broker.port}"
    with OldClient(url) as client, OldClient(url, b"transacted") as transacted:
        client.do(c.QueueDeclare("old", durable=True))
        client.publish("old", b"first")
        client.subscribe("old", count=1)
        number = client.receive().number
        transacted.do(c.TxSelect())
        transacted.publish("old", b"within")
        steps = (
            (client, c.MessageTransfer("", 1, 0), content("old", delivery_mode=2)),
            (client, c.MessageAccept(((number, number),)), {}),
            (transacted, c.TxCommit(), {}),
        )
        for who, command, parts in steps:
            with gate.held():
                said = who.say(command, sync=True, **parts)
                gate.wait_reached()
                with connected(url):  # the broker goes on, and answers others
                    assert who.is_told_nothing
            who.wait_for(said)
    broker.stop()
