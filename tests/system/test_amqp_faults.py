"""Peers that misbehave, bad calls, and the way a broker stops."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from proton import Message

from tests.support.checkout import CHECKOUT
from tests.support.system.clients import TIMEOUT_S, Holder, connected, send, take
from tests.support.system.processes import BrokerProcess, StartBroker

pytestmark = [pytest.mark.system, pytest.mark.slow]

AMQP = b"AMQP\x00\x01\x00\x00"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "broker_shim.serve.command", *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
    )


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x00" * 4096,
        os.urandom(4096),
        AMQP + b"\xff\xff\xff\xff\x02\x00\x00\x00",
        AMQP + b"\x00\x10\x00\x00\x02\x00\x00\x00" + b"\x00" * 64,
        AMQP + b"\x00\x00\x00\x10\x02\x00\x00\x00" + b"\x00" * 8,
        AMQP + b"\x00\x00\x10\x00\x02\x00\x00\x00" + b"\x00" * 4088,
    ],
    ids=["http", "zeroes", "random", "4 GiB frame", "over max frame", "descriptors", "deep"],
)
def test_garbage_ends_its_own_connection_only(broker: BrokerProcess, garbage: bytes) -> None:
    with connected(broker.url) as connection:
        sender = connection.create_sender("q")
        sender.send(Message(id=1))
        with socket.create_connection(("127.0.0.1", broker.port), timeout=TIMEOUT_S) as peer:
            peer.sendall(garbage)
            peer.shutdown(socket.SHUT_WR)
            while peer.recv(4096):
                pass
        sender.send(Message(id=2))
    assert [m.id for m in take(broker.url, "q", 2)] == [1, 2]
    assert broker.terminate() == 0
    assert "protocol_errors=1" in broker.log


def test_a_peer_that_goes_in_the_middle_of_a_frame_is_forgotten(broker: BrokerProcess) -> None:
    for cut in (1, 5, 8, 11):
        with socket.create_connection(("127.0.0.1", broker.port), timeout=TIMEOUT_S) as peer:
            peer.sendall((AMQP + b"\x00\x00\x01\x00\x02\x00\x00\x00")[:cut])
    send(broker.url, "q", Message(id=1))
    assert broker.terminate() == 0


def test_a_connection_that_never_opens_is_closed(start_broker: StartBroker, tmp_path: Path) -> None:
    settings = tmp_path / "sparkstore.toml"
    settings.write_text("[broker]\nhandshake_timeout_s = 2\n")  # for the sender, too
    broker = start_broker("--memory", "--config", str(settings))
    with socket.create_connection(("127.0.0.1", broker.port), timeout=TIMEOUT_S) as peer:
        peer.sendall(AMQP[:4])
        while peer.recv(4096):
            pass
    send(broker.url, "q", Message(id=1))


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "192.0.2.7", ""])
def test_an_address_that_others_reach_is_refused(host: str) -> None:
    result = run("--memory", "--listen", f"{host}:0")
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1
    assert "--listen" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--memory", "--listen", "here"], "HOST:PORT"),
        (["--memory", "--bind", "amq.topic"], "EXCHANGE:KEY:QUEUE"),
        (["--memory", "--config", "no-such-file"], "no-such-file"),
        ([], "--memory"),
        (["--memory", "root"], "one of"),
        (["--configuration", "folder", "root"], "one of"),
        (["--configuration", "/dev/null/folder", "--listen=127.0.0.1:0"], "/dev/null/folder"),
    ],
)
def test_a_wrong_call_says_in_one_line_what_to_do(arguments: list[str], said: str) -> None:
    result = run(*arguments)
    assert result.returncode == 2
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["--exchange", "x:none"], 2), (["--bind", "amq.topic:k:unknown"], 2)],
)
def test_wiring_that_cannot_be_is_refused_at_start(arguments: list[str], code: int) -> None:
    result = run("--memory", "--listen", "127.0.0.1:0", *arguments)
    assert result.returncode == code
    assert "sparkstore serve: " in result.stderr
    assert "Traceback" not in result.stderr


def test_links_of_a_newer_version_end_the_start_and_stay_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "links.json"
    file.write_text('{"format": "sparkstore links", "version": 99}')
    result = run("--configuration", str(tmp_path), "--listen", "127.0.0.1:0")
    assert result.returncode == 4
    assert "install a newer" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert file.read_text() == '{"format": "sparkstore links", "version": 99}'


def test_a_folder_of_configuration_is_one_brokers(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    start_broker("--configuration", str(tmp_path))
    result = run("--configuration", str(tmp_path), "--listen", "127.0.0.1:0")
    assert result.returncode == 75
    assert len(result.stderr.splitlines()) == 1


def test_a_port_that_is_taken_is_one_clear_line(broker: BrokerProcess) -> None:
    result = run("--memory", "--listen", f"127.0.0.1:{broker.port}")
    assert result.returncode == 2
    assert f"127.0.0.1:{broker.port}" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly_and_tells_its_clients(
    broker: BrokerProcess, how: signal.Signals
) -> None:
    send(broker.url, "q", Message(id=1))
    held = threading.Event()
    errors: list[str] = []

    class Told(Holder):
        def on_connection_remote_close(self, event: Any) -> None:
            errors.append(event.connection.remote_condition.name)
            event.container.stop()

        def on_message(self, event: object) -> None:  # noqa: ARG002
            held.set()

    holder = Told(broker.url, "q", 1)
    thread = threading.Thread(target=holder.run)
    thread.start()
    assert held.wait(TIMEOUT_S)
    broker.signal(how)
    assert broker.wait() == 0
    thread.join(TIMEOUT_S)
    assert errors == ["amqp:connection:forced"]
    assert "stopped cleanly" in broker.log
    assert "Traceback" not in broker.log


def test_counters_are_written_for_prometheus(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = start_broker("--memory", "--metrics-file", str(tmp_path / "broker.prom"))
    send(broker.url, "q", Message(id=1))
    broker.terminate()
    written = (tmp_path / "broker.prom").read_text().splitlines()
    assert "sparkstore_broker_enqueued_total 1.0" in written
