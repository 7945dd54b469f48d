"""The loop: a peer, a link or a socket that fails is nobody else's trouble."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from broker_shim.amqp_1_0.composites import Begin, Close, Flow, Open
from broker_shim.broker.settings import BrokerSettings
from broker_shim.listener_1_0.connections.connection import Connection
from broker_shim.protocol_1_0.codec.frames import EMPTY_FRAME, encoded_frame
from broker_shim.security.guard import Guard
from broker_shim.security.security_settings import SecuritySettings
from broker_shim.sockets import listener
from tests.support.amqp.certificates import Authority
from tests.support.amqp.served_listener import AMQP, Served, exhaust
from tests.support.readiness import is_ready

OPEN_WITH_BYTES_FOR_A_NAME = bytes.fromhex("00000012 02000000 005310 c00501 a102fffe")


@pytest.fixture
def served() -> Iterator[Served]:
    it = Served()
    yield it
    it.close()


def greet(peer: socket.socket) -> bytes:
    peer.sendall(AMQP)
    return peer.recv(len(AMQP), socket.MSG_WAITALL)


def test_a_name_that_is_not_utf_8_ends_that_connection_only(served: Served) -> None:
    def client() -> None:
        with served.connect() as peer:
            peer.sendall(AMQP + OPEN_WITH_BYTES_FOR_A_NAME)
            exhaust(peer)
        with served.connect() as peer:
            assert greet(peer) == AMQP

    served.run_while(client)


@pytest.mark.parametrize("step", ["receive", "unsent", "output", "lost"])
def test_a_fault_in_any_step_of_a_connection_ends_that_connection_only(
    served: Served,
    step: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    method = getattr(Connection, step)
    failed: list[Connection] = []

    def failing_once(connection: Connection, *arguments: object) -> Any:
        if not failed:
            failed.append(connection)
            raise ValueError("a fault")
        return method(connection, *arguments)

    monkeypatch.setattr(Connection, step, failing_once)

    def client() -> None:
        with served.connect() as peer:
            peer.sendall(AMQP)
            with suppress(OSError):  # it may have been hung up on already
                peer.shutdown(socket.SHUT_WR)
            exhaust(peer)
        with served.connect() as peer:
            assert greet(peer) == AMQP

    with caplog.at_level(logging.ERROR):
        served.run_while(client)
    assert f"connection {failed[0].number}" in caplog.text


def test_a_heartbeat_that_fails_ends_that_connection_only(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tick(_connection: Connection, _now_s: float) -> None:
        raise ValueError("a fault")

    monkeypatch.setattr(Connection, "tick", tick)

    def client() -> None:
        with served.connect() as peer:
            exhaust(peer)

    served.run_while(client)


def test_a_call_that_fails_does_not_lose_the_others(served: Served) -> None:
    ran: list[str] = []
    served.loop.later(0.0, lambda: ran.remove("one"))
    served.loop.later(0.0, lambda: ran.append("two"))
    served.run_while(lambda: None)
    assert ran == ["two"]


def test_an_accept_that_fails_is_not_tried_again_at_once(served: Served) -> None:
    served.listening.failures_left = 1_000_000
    with served.connect():
        served.loop.later(0.1, lambda: served.listener.end("the test is over"))
        served.listener.run()
    assert served.listening.attempts == 1


def test_connections_are_accepted_again_after_a_while(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "_ACCEPT_PAUSE_S", 0.01)
    served.listening.failures_left = 2

    def client() -> None:
        with served.connect() as peer:
            assert greet(peer) == AMQP

    served.run_while(client)
    assert served.listening.attempts == 4  # two failed, one came, and then there was none


def test_what_a_call_found_to_hand_out_does_not_wait_for_the_next_event(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[str] = []

    def dispatch() -> None:
        turns.append("dispatch")
        if "call" in turns:
            served.listener.end("the test is over")

    monkeypatch.setattr(served.broker, "dispatch", dispatch)
    served.loop.later(0.01, lambda: turns.append("call"))
    served.listener.run()
    assert turns[turns.index("call") + 1] == "dispatch"


def test_a_peer_hears_of_us_as_often_as_it_asked_for(served: Served) -> None:
    def client() -> None:
        with served.connect() as peer:
            greet(peer)
            peer.sendall(encoded_frame(Open("c", idle_time_out=100)))
            said = b""
            while EMPTY_FRAME not in said:
                said += peer.recv(4096)

    served.run_while(client)  # it hears in time, or its socket's own limit ends the test


def test_a_peer_that_asks_and_does_not_read_is_not_read_either_until_it_reads() -> None:
    buffered_bytes = 1 << 16
    served = Served(BrokerSettings(buffered_bytes=buffered_bytes))
    ask = encoded_frame(Flow(0, 1, 0, 1, echo=True)) * 1_000
    most: list[int] = []

    def client() -> None:
        with served.connect() as peer:
            greet(peer)
            begin = Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1)
            peer.sendall(encoded_frame(Open("c")) + encoded_frame(begin))
            peer.recv(4096)
            (ours,) = served.listener._peers
            left = b""
            while ours._is_reading or not ours._is_gathering:
                if is_ready(peer, 0.01, to_write=True):
                    left = left or ask
                    left = left[peer.send(left, socket.MSG_DONTWAIT) :]
            most.append(ours._transport.get_write_buffer_size())
            while not ours._is_reading:
                peer.recv(1 << 16)

    served.run_while(client)
    served.listener.close()
    served.store.close()
    served.inbox.close()
    assert 2 * buffered_bytes < most[0] < 2 * buffered_bytes + 2 * listener._READ_BYTES


class Standby:
    """The other machine of a pair, in step."""

    is_expected = True
    calls = 0

    def go_on(self) -> None:
        self.calls += 1


@pytest.mark.parametrize("tls", [False, True])
def test_peers_of_a_machine_that_is_followed_read_all_and_then_the_end_of_the_socket(
    tls: bool, tmp_path: Path
) -> None:
    """No close frame: a reactor of Proton would wait for its idle time after one."""
    pair = Authority(tmp_path).issue_server() if tls else None
    files = {"tls_cert": str(pair.certificate), "tls_key": str(pair.key)} if pair else {}
    served = Served(guard=Guard(SecuritySettings(**files)))
    served.listener.successor = standby = Standby()
    heard: list[bytes] = []

    def client() -> None:
        peer = served.connect()
        if tls:
            trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
            peer = trusting.wrap_socket(peer)
        peer.sendall(AMQP + encoded_frame(Open("c")))
        assert peer.recv(len(AMQP)) == AMQP
        peer.recv(4096)
        served.listener.stop()
        peer.sendall(EMPTY_FRAME * 1000)  # read and dropped: a reset would take what was written
        while more := peer.recv(4096):
            heard.append(more)
        peer.close()

    served.run_while(client)
    served.close()
    assert encoded_frame(Close())[8:11] not in b"".join(heard)
    assert standby.calls == 1


def is_hung_up_on(peer: socket.socket) -> bool:
    """True once it is; its socket's own limit ends the test else."""
    with suppress(ConnectionResetError):
        while peer.recv(100):
            pass
    return True


@pytest.mark.parametrize("count", [3, 200])
def test_silent_connections_keep_nobody_out_and_are_told_in_few_lines(count: int) -> None:
    """The oldest half-open one gives way: who comes last gets in, however many are silent."""
    heard: list[tuple[str, dict[str, Any]]] = []
    guard = Guard(SecuritySettings(), audit=lambda event, **details: heard.append((event, details)))
    served = Served(BrokerSettings(max_half_open=2, handshake_timeout_s=600.0), guard)

    def client() -> None:
        with ExitStack() as stack:
            silent = [stack.enter_context(served.connect()) for _ in range(count)]
            honest = stack.enter_context(served.connect())
            honest.sendall(AMQP + encoded_frame(Open("honest"), 0))
            assert honest.recv(len(AMQP)) == AMQP
            for each in silent[: count - 1]:
                assert is_hung_up_on(each)

    served.run_while(client)
    served.listener.close()
    served.store.close()
    served.inbox.close()
    guard.tell()
    told = [details for event, details in heard if event == "connection-refused"]
    assert sum(details.get("count", 1) for details in told) == count - 1
    assert len(told) < 30
    assert guard.counts.refused_connections == count - 1
