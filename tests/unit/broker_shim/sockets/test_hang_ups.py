"""Who comes and goes leaves nothing behind that only Python's collector would find.

It comes seldom, so cycles of connections that are over would fill the memory before it does: each
TLS connection to the ordinary listener left 140 KB, which strangers can make some hundreds of in
a second.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker_shim.amqp_0_10 import commands as c
from broker_shim.amqp_0_10.controls import (
    ConnectionClose,
    ConnectionOpen,
    ConnectionStartOk,
    ConnectionTuneOk,
    SessionAttach,
    SessionDetach,
)
from broker_shim.amqp_1_0.composites import (
    Accepted,
    Attach,
    Close,
    Coordinator,
    Declare,
    Detach,
    Disposition,
    Flow,
    Source,
    Target,
    Transfer,
)
from broker_shim.amqp_1_0.primitives import Symbol
from broker_shim.broker.settings import BrokerSettings
from broker_shim.broker.virtual_host import Broker
from broker_shim.broker.wiring.routing import DEFAULT_EXCHANGES
from broker_shim.completion import nobody
from broker_shim.framing.assembly import Assembly, MethodReader, frames_of
from broker_shim.framing.frames import PROTOCOL_HEADER, FrameReader
from broker_shim.framing.order import FramingLimits
from broker_shim.listener_0_10.host import Amqp010Listener
from broker_shim.listener_1_0.host import Amqp10Listener
from broker_shim.protocol_1_0.codec.encoder import write
from broker_shim.protocol_1_0.codec.frames import SASL_HEADER
from broker_shim.security.guard import Guard
from broker_shim.security.security_settings import SecuritySettings
from broker_shim.sockets.shared_port import SharedPort
from broker_shim.store.interface import Exchange, Queue
from sparkstore.core.state_machine.call_values import CreateCall
from tests.support.amqp.amqp_0_10 import INFINITE, content
from tests.support.amqp.certificates import Authority
from tests.support.amqp.left_behind import objects_left, told
from tests.support.amqp.served_listener import TIMEOUT_S, Served, exhaust
from tests.support.system.processes import BrokerProcess
from tests.support.system.raw_peer import RawPeer

pytestmark = pytest.mark.slow

TIMES = 1_000
TLS_TIMES = 400
MOST = 0.6
"""For each connection: some timers that were taken back stay with asyncio until they are due."""
BODY = b"\x00\x53\x75\xa0\x01x"
WINDOW = 1_000


def both(broker: Broker) -> SharedPort:
    """AMQP 1.0 and 0-10 on one port."""
    return SharedPort({PROTOCOL_HEADER: Amqp010Listener(broker)}, Amqp10Listener(broker))


class House:
    """A broker on real sockets, for a client on another thread."""

    def __init__(self, guard: Guard | None = None, settings: BrokerSettings | None = None) -> None:
        told = {} if guard is None else {"guard": guard}
        self._last = half_sasl if guard is None else tls_0_10
        self.served = Served(settings or BrokerSettings(), host_of=both, **told)
        broker = self.served.broker
        for name, kind in DEFAULT_EXCHANGES.items():
            broker.calls.make(CreateCall(exchange := Exchange(name, kind)), nobody)
            broker.router.add_exchange(exchange)
        broker.create_queue(Queue("q"), lambda _error: None)

    def settle(self) -> None:
        """Until every connection is over, and the store owes nothing."""
        self.once(self._last)  # accepted last, so all others were accepted before
        is_over = False
        while not is_over:
            looked = threading.Event()

            def look(looked: threading.Event = looked) -> None:
                nonlocal is_over
                listener = self.served.listener
                is_there = listener.connection_count or listener._arriving
                is_over = not (is_there or self.served.broker.open_count)
                looked.set()

            self.served.loop.post(look)
            assert looked.wait(TIMEOUT_S)

    def once(self, act: Callable[[socket.socket], None]) -> None:
        """Connect, do something, and hang up."""
        with self.served.connect() as peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            act(peer)

    def left(self, act: Callable[[socket.socket], None], times: int = TIMES) -> float:
        """Objects that each connection leaves which does this."""
        found: list[float] = []
        once = partial(self.once, act)
        self.served.run_while(lambda: found.append(objects_left(once, times, self.settle)))
        return found[0]


@pytest.fixture
def house() -> Iterator[House]:
    it = House()
    yield it
    it.served.close()


def raw(peer: socket.socket) -> RawPeer:
    """A peer of AMQP 1.0 on a socket that is connected."""
    port = SimpleNamespace(port=peer.getpeername()[1])
    it = RawPeer(cast("BrokerProcess", port))
    it.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer.close()
    return it


def silent(_peer: socket.socket) -> None:
    """Nothing is said."""


def strange(peer: socket.socket) -> None:
    peer.sendall(b"GET / HTTP/1.1\r\n\r\n")
    exhaust(peer)


def half_sasl(peer: socket.socket) -> None:
    peer.sendall(SASL_HEADER.encoded())
    peer.recv(8, socket.MSG_WAITALL)


def login(peer: socket.socket) -> None:
    with raw(peer) as client:
        client.opened()
        client.say(Close())
        client.until(Close)


def working(peer: socket.socket) -> None:
    """Sends, receives, browses, works in a transaction, and hangs up in the midst of it."""
    with raw(peer) as client:
        client.opened().begun()
        client.sending("q")
        transfer = Transfer(0, 0, b"0", 0, settled=False)
        client.transfer(transfer, BODY)
        client.until(Disposition)
        browsing = Source("q", distribution_mode=Symbol("copy"))
        client.say(Attach("b", 1, True, source=browsing, target=Target("t")))
        client.say(Flow(0, WINDOW, 1, WINDOW, 1, 0, 10))
        client.until(Transfer)
        client.say(Attach("r", 2, True, source=Source("q"), target=Target("t")))
        client.say(Flow(0, WINDOW, 1, WINDOW, 2, 0, 10))
        number = client.until(Transfer).delivery_id
        client.say(Disposition(True, number, number, True, Accepted()))
        client.say(
            Attach(
                "c", 3, False, source=Source("t"), target=Coordinator(), initial_delivery_count=0
            )
        )
        client.until(Flow)
        declare = b"\x00\x53\x77" + write(Declare())
        client.transfer(Transfer(3, 1, b"1", 0, settled=False), declare)
        client.until(Disposition)
        client.say(Detach(0, closed=True))
        client.until(Detach)


class Client010:
    """A peer of AMQP 0-10."""

    def __init__(self, peer: socket.socket) -> None:
        self._peer, self._reader = peer, FrameReader()
        self._methods = MethodReader(FramingLimits())
        peer.sendall(PROTOCOL_HEADER)
        assert peer.recv(8, socket.MSG_WAITALL) == PROTOCOL_HEADER

    def say(self, method: Any, channel: int = 1, **parts: Any) -> None:
        frames = frames_of(Assembly(channel, method, **parts), 4_096)
        self._peer.sendall(b"".join(frame.encoded for frame in frames))

    def hears(self, name: str) -> None:
        """Read on until it is told that."""
        while True:
            for frame in self._reader.feed(self._peer.recv(1 << 16)):
                found = self._methods.take(frame)
                if isinstance(found, Assembly) and name == found.method.NAME:
                    return

    def open(self) -> None:
        start = ConnectionStartOk({}, "ANONYMOUS", b"", "en_US")
        for control in (start, ConnectionTuneOk(200, 65_535, 0), ConnectionOpen("")):
            self.say(control, 0)
        self.hears("connection.open-ok")


def half_0_10(peer: socket.socket) -> None:
    Client010(peer)


def login_0_10(peer: socket.socket) -> None:
    client = Client010(peer)
    client.open()
    client.say(ConnectionClose(200, ""), 0)
    client.hears("connection.close-ok")


def working_0_10(peer: socket.socket) -> None:
    """Sends and receives, asks on channels that have no session, and hangs up in the midst."""
    client = Client010(peer)
    client.open()
    client.say(SessionDetach(b"none"), 2)
    client.hears("session.detached")
    client.say(SessionAttach(b"it"))
    client.hears("session.attached")
    client.say(c.MessageTransfer("", 1, 0), **content("q"))
    client.say(c.MessageSubscribe("q", "d", 0, 0))
    for unit in (0, 1):
        client.say(c.MessageFlow("d", unit, INFINITE))
    client.hears("message.transfer")
    client.say(c.MessageAccept(((0, 0),)))
    client.say(c.ExecutionSync(), sync=True)
    client.hears("session.completed")


@pytest.mark.parametrize(
    "act",
    [silent, strange, half_sasl, login, working, half_0_10, login_0_10, working_0_10],
    ids=lambda act: act.__name__,
)
def test_a_connection_that_is_over_leaves_nothing_for_the_collector(
    house: House, act: Callable[[socket.socket], None]
) -> None:
    assert house.left(act) < MOST, told()


TRUSTING = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
TRUSTING.check_hostname, TRUSTING.verify_mode = False, ssl.CERT_NONE


def shake_hands(peer: socket.socket) -> ssl.SSLSocket:
    return TRUSTING.wrap_socket(peer)


def tls_hang_up(peer: socket.socket) -> None:
    shake_hands(peer).close()


def tls_in_order(peer: socket.socket) -> None:
    with shake_hands(peer) as client, suppress(OSError):
        client.unwrap()


def tls_0_10(peer: socket.socket) -> None:
    with shake_hands(peer) as client:
        client.sendall(PROTOCOL_HEADER)
        client.recv(8)


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Guard:
    pair = Authority(tmp_path_factory.mktemp("tls")).issue_server()
    return Guard(SecuritySettings(tls_cert=str(pair.certificate), tls_key=str(pair.key)))


@pytest.mark.parametrize(
    "act", [silent, strange, tls_hang_up, tls_in_order, tls_0_10], ids=lambda act: act.__name__
)
def test_a_tls_connection_that_is_over_leaves_nothing_for_the_collector(
    guard: Guard, act: Callable[[socket.socket], None]
) -> None:
    house = House(guard)
    assert house.left(act, TLS_TIMES) < MOST, told()
    house.served.close()


def test_who_gives_way_to_another_leaves_nothing_for_the_collector(guard: Guard) -> None:
    house = House(guard, BrokerSettings(max_half_open=4, handshake_timeout_s=0.5))
    kept: list[socket.socket] = []

    def stay(peer: socket.socket) -> None:
        kept.append(peer.dup())
        if len(kept) > 8:
            kept.pop(0).close()

    assert house.left(stay, TLS_TIMES) < MOST, told()
    house.served.close()
