"""Whose processes the control socket serves: the broker's own user's and root's."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from broker_shim.broker.metrics import Metrics
from broker_shim.broker.settings import BrokerSettings
from broker_shim.broker.storage.inbox import Inbox
from broker_shim.broker.storage.loop import Loop
from broker_shim.broker.storage.store_calls import StoreCalls
from broker_shim.broker.virtual_host import Broker
from broker_shim.listener_1_0.messages.common_header import AmqpCommonHeader
from broker_shim.serve.administration.control import ControlServer
from broker_shim.serve.administration.order_turns import OneBroker, OrderTurns
from broker_shim.service import socket as listening
from broker_shim.store.memory import MemoryMessageStore
from sparkstore.control.socket_address import SOCKET_NAME
from sparkstore.operations import wire
from tests.support.stores.services import short_folder

ROOT_ID, TIMEOUT_S = "a root", 20


@pytest.fixture
def answer_of_a_client() -> Iterator[bytes]:
    """What the first client of a control socket hears when it has said hello."""
    loop = Loop(inbox := Inbox())
    calls = StoreCalls(MemoryMessageStore(), inbox, lambda _error: None)
    broker = Broker(calls, BrokerSettings(), Metrics(), loop.later, AmqpCommonHeader)
    with short_folder() as folder, socket.socket(socket.AF_UNIX) as client:
        server = ControlServer(loop, OrderTurns(loop, OneBroker(broker)), Path(folder), ROOT_ID)
        client.settimeout(TIMEOUT_S)
        client.connect(str(folder / SOCKET_NAME))
        client.sendall(wire.line(wire.hello(ROOT_ID)))
        for _ in range(3):  # it accepts, reads, answers
            loop.asyncio.call_soon(loop.asyncio.stop)
            loop.run()
        try:
            yield client.recv(1000)
        except ConnectionResetError:
            yield b""
        finally:
            server.close()
            loop.close()


@pytest.fixture
def _another_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mode of the socket's file keeps such a process out; this is for when it does not."""
    monkeypatch.setattr(listening, "_credentials", lambda _peer: (4711, 12345))


def test_our_own_users_process_is_served(answer_of_a_client: bytes) -> None:
    assert ROOT_ID.encode() in answer_of_a_client


@pytest.mark.usefixtures("_another_users")
def test_another_users_process_is_not(answer_of_a_client: bytes) -> None:
    assert answer_of_a_client == b""


def test_clients_that_say_nothing_keep_no_other_out() -> None:
    """They come faster than they are accepted, and the oldest of them gives way."""
    loop = Loop(inbox := Inbox())
    calls = StoreCalls(MemoryMessageStore(), inbox, lambda _error: None)
    broker = Broker(calls, BrokerSettings(), Metrics(), loop.later, AmqpCommonHeader)
    with short_folder() as folder, ExitStack() as sockets:
        server = ControlServer(loop, OrderTurns(loop, OneBroker(broker)), Path(folder), ROOT_ID)

        def connected() -> socket.socket:
            client = sockets.enter_context(socket.socket(socket.AF_UNIX))
            client.settimeout(TIMEOUT_S)
            client.connect(str(folder / SOCKET_NAME))
            return client

        for _ in range(200):
            connected()
        client = connected()
        client.sendall(wire.line(wire.hello(ROOT_ID)))
        for _ in range(20):
            loop.asyncio.call_soon(loop.asyncio.stop)
            loop.run()
        assert ROOT_ID.encode() in client.recv(1000)
        assert server.client_count == 32
        server.close()
        loop.close()
