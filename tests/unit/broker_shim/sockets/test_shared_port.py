"""One port for AMQP 1.0 and 0-10: the first bytes tell which a client speaks."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from broker_shim.broker.settings import BrokerSettings
from broker_shim.broker.virtual_host import Broker
from broker_shim.framing.frames import PROTOCOL_HEADER as OLDER
from broker_shim.listener_0_10.host import Amqp010Listener
from broker_shim.listener_1_0.host import Amqp10Listener
from broker_shim.security.guard import Guard
from broker_shim.security.security_settings import SecuritySettings
from broker_shim.sockets.access import LOOPBACK
from broker_shim.sockets.shared_port import SharedPort
from tests.support.amqp.certificates import Authority
from tests.support.amqp.served_listener import AMQP, TIMEOUT_S, Served, exhaust

SASL = b"AMQP\x03\x01\x00\x00"
SLOW = BrokerSettings(handshake_timeout_s=0.2)


def on_one_port(broker: Broker) -> SharedPort:
    return SharedPort({OLDER[:5]: Amqp010Listener(broker)}, Amqp10Listener(broker))


@pytest.fixture
def both() -> Iterator[Served]:
    it = Served(host_of=on_one_port)
    yield it
    it.close()


def heard(peer: socket.socket) -> bytes:
    return peer.recv(8, socket.MSG_WAITALL) if not isinstance(peer, ssl.SSLSocket) else peer.recv(8)


def says(served: Served, header: bytes, answer: bytes) -> Callable[[], None]:
    """A client that says a header, byte by byte, and is answered."""

    def client() -> None:
        with served.connect() as peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for byte in header:
                peer.sendall(bytes([byte]))
            assert heard(peer) == answer

    return client


@pytest.mark.parametrize("header", [AMQP, SASL, OLDER])
def test_each_client_is_answered_in_what_it_speaks(both: Served, header: bytes) -> None:
    both.run_while(says(both, header, header))


@pytest.mark.parametrize(
    ("header", "answer"),
    [
        (b"AMQP\x01\x01\x00\x09", OLDER),  # 0-9
        (b"AMQP\x01\x01\x08\x00", OLDER),  # 0-8
        (b"AMQP\x00\x00\x09\x01", AMQP),  # 0-9-1
        (b"AMQP\x00\x02\x00\x00", AMQP),
        (b"GET / HTTP/1.1\r\n\r\n", AMQP),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", AMQP),  # TLS where there is none
        (b"AMQQ\x01\x01\x00\x0a", AMQP),
    ],
)
def test_who_speaks_neither_hears_what_is_spoken_and_is_hung_up_on(
    both: Served, header: bytes, answer: bytes
) -> None:
    def client() -> None:
        with both.connect() as peer:
            peer.sendall(header)
            assert heard(peer) == answer
            exhaust(peer)

    both.run_while(client)
    assert both.listener.connection_count == 0


@pytest.mark.parametrize("said", [b"", b"AMQ", b"AMQP"])
def test_who_does_not_say_what_it_speaks_is_hung_up_on_in_time(said: bytes) -> None:
    with closing(Served(SLOW, host_of=on_one_port)) as served:

        def client() -> None:
            with served.connect() as peer:
                peer.sendall(said)
                assert peer.recv(1) == b""

        served.run_while(client)
        assert served.listener.connection_count == 0


def test_who_hangs_up_before_it_said_what_it_speaks_leaves_nothing(both: Served) -> None:
    def client() -> None:
        with both.connect() as peer:
            peer.sendall(b"AMQP")
            peer.shutdown(socket.SHUT_WR)
            assert peer.recv(1) == b""

    both.run_while(client)
    assert both.listener.connection_count == 0
    assert both.broker.metrics.connections == 1


def test_one_that_is_undecided_is_over_when_the_broker_stops(both: Served) -> None:
    output: list[str] = []
    port = SharedPort({}, Amqp10Listener(both.broker))
    connection = port.connect(lambda: output.append("due"), LOOPBACK)
    connection.close_forced("the broker stops")
    assert (connection.is_closed, connection.is_over, output) == (True, True, ["due"])


@pytest.mark.parametrize("header", [AMQP, OLDER])
def test_what_a_client_speaks_is_told_within_tls_too(tmp_path: Path, header: bytes) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue_server()
    settings = SecuritySettings(tls_cert=str(pair.certificate), tls_key=str(pair.key))
    trusting = ssl.create_default_context(cafile=str(authority.pair.certificate))
    with closing(Served(guard=Guard(settings), host_of=on_one_port)) as served:

        def client() -> None:
            with trusting.wrap_socket(served.connect(), server_hostname="localhost") as peer:
                peer.settimeout(TIMEOUT_S)
                for byte in header:
                    peer.sendall(bytes([byte]))
                assert heard(peer) == header

        served.run_while(client)
