"""The control socket of a broker or a store service: what `sparkstore.control.client` asks.

A client is told if it asks for what cannot be; one that does not greet is let go of, too. What is
asked is carried out by `order_turns`.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from broker_shim.broker.storage.loop import Loop
from broker_shim.errors import StoreError
from broker_shim.serve.administration.control_orders import ControlClient
from broker_shim.serve.administration.order_turns import OrderTurns
from broker_shim.service.socket import is_our_user
from sparkstore.control.socket_address import SOCKET_NAME, SocketAddress
from sparkstore.operations import wire

_log = logging.getLogger(__name__)

_READ_BYTES = 1 << 18
_BATCH_BYTES = 4 << 20
"""Content in one request of a replay, however small a message must be here."""
_LINE_SLACK_BYTES = 1 << 20
_MAX_CLIENTS, _BACKLOG, _ACCEPTS_IN_TURN = 32, 1024, 64


class ControlServer:
    """Listens in the folder of the root, until `close`; on the loop's thread."""

    def __init__(
        self,
        loop: Loop,
        turns: OrderTurns,
        folder: Path,
        root_id: str,
        hand_over: Callable[[socket.socket], None] | None = None,
    ) -> None:
        """Bind `<root>/control.sock`; what a killed broker left there is replaced.

        The caller has the writer's lock, so no live broker can be listening on it. `hand_over` gets
        connections that speak HTTP.

        Raises:
            OSError: The folder cannot be written.
        """
        self._loop, self._turns, self._hand_over = loop, turns, hand_over
        self._path, self._root_id = folder / SOCKET_NAME, root_id
        self._clients: dict[ControlClient, None] = {}
        self._path.unlink(missing_ok=True)
        self._listening = socket.socket(socket.AF_UNIX)
        try:
            os.fchmod(self._listening.fileno(), 0o600)  # before the file is there: no gap
            with SocketAddress(folder) as address:
                self._listening.bind(address)
            self._listening.listen(_BACKLOG)
        except OSError:
            self._listening.close()
            raise
        self._listening.setblocking(False)  # noqa: FBT003  # the library's signature
        loop.on_readable(self._listening, self._accept)

    @property
    def client_count(self) -> int:
        """The number of clients that are connected."""
        return len(self._clients)

    def close(self) -> None:
        """Stop listening, before the writer's lock is let go of: whoever finds nobody takes it."""
        self._path.unlink(missing_ok=True)
        self.hang_up()
        self._loop.forget(self._listening)
        self._listening.close()

    def hang_up(self) -> None:
        """End all that clients asked for and that has not begun; they may connect again."""
        for client in list(self._clients):
            self._drop(client)
        self._turns.give_up()

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_IN_TURN):
            try:
                accepted, _address = self._listening.accept()
            except OSError:
                return
            accepted.setblocking(False)  # noqa: FBT003
            if is_our_user(accepted) and self._has_place():
                client = ControlClient(accepted, self._say)
                self._clients[client] = None
                self._loop.on_readable(accepted, partial(self._contain, self._read, client))
            else:
                accepted.close()

    def _has_place(self) -> bool:
        """Whether one more may come: the oldest that has not greeted gives way if it must."""
        if self.client_count < _MAX_CLIENTS:
            return True
        silent = next((each for each in self._clients if not each.has_greeted), None)
        if silent is not None:
            self._drop(silent)
        return silent is not None

    def _contain(self, step: Callable[[ControlClient], None], client: ControlClient) -> None:
        """A fault in one client's connection ends it, and nothing else."""
        try:
            step(client)
        except Exception:  # noqa: BLE001
            _log.exception("a control connection failed and is ended")
            self._drop(client)

    def _read(self, client: ControlClient) -> None:
        if self._is_http(client):
            return
        try:
            received = client.peer.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        if not received:
            self._drop(client)
            return
        client.received += received
        limit = 2 * max(self._turns.max_message_bytes, _BATCH_BYTES) + _LINE_SLACK_BYTES
        for line in client.lines():
            self._take(client, line)
        if len(client.received) > limit:
            self._drop(client)

    def _is_http(self, client: ControlClient) -> bool:
        """Hand a connection over whose first byte begins no object of JSON."""
        if self._hand_over is None or client.has_greeted or client.received:
            return False
        with suppress(OSError):
            if client.peer.recv(1, socket.MSG_PEEK) not in {b"{", b""}:
                del self._clients[client]
                self._loop.forget(client.peer)
                self._hand_over(client.peer)
                return True
        return False

    def _take(self, client: ControlClient, line: bytes) -> None:
        if client not in self._clients:
            return
        try:
            content = wire.content_of(line)
            if not client.has_greeted:
                wire.check_hello(content, self._root_id)
                client.has_greeted = True
                self._say(client, wire.line(wire.hello(self._root_id)))
                return
            self._turns.take(client, content)
        except StoreError as refusal:
            self._say(client, wire.error_line(refusal))
            if not client.has_greeted:
                self._drop(client)
            return

    def _say(self, client: ControlClient, line: bytes) -> None:
        if client in self._clients:
            client.to_send += line
            self._write(client)

    def _write(self, client: ControlClient) -> None:
        try:
            sent = client.peer.send(client.to_send)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._drop(client)
            return
        del client.to_send[:sent]
        if bool(client.to_send) != client.is_watched:
            client.is_watched = bool(client.to_send)
            more = partial(self._contain, self._write, client) if client.to_send else None
            self._loop.on_writable(client.peer, more)

    def _drop(self, client: ControlClient) -> None:
        """Forget a client; what it asked for and the store has, is done all the same."""
        if client in self._clients:
            del self._clients[client]
            client.is_there = False
            self._turns.forget(client)
            self._loop.forget(client.peer)
            client.peer.close()
