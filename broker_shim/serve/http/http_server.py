"""The thread of HTTP, on a loop of its own, with a port for each listening socket of the process.

    --http HOST:PORT        the console and the whole table, for whoever logs in
    <root>/control.sock     the whole table, for the owner of the root
    --metrics-listen        metrics and probes, for a monitor

`port` has what each accepts and for how long. TCP ports answer before the store is open, so that
probes see a long recovery; the control socket is there once the broker serves.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import socket
import threading
from contextlib import suppress
from pathlib import Path

from broker_shim.broker.settings import BrokerSettings
from broker_shim.broker.storage.loop import Loop
from broker_shim.errors import InvalidRequest
from broker_shim.security.guard import Guard
from broker_shim.security.security_options import security_of
from broker_shim.security.security_settings import SecuritySettings, offered_mechanisms
from broker_shim.serve.administration.order_turns import OrderTurns
from broker_shim.serve.bind_address import listening_socket, parse_listen
from broker_shim.serve.http.authenticator import Logins, RootOwner
from broker_shim.serve.http.calls import ServedBroker
from broker_shim.serve.http.console.console_files import console_endpoints
from broker_shim.serve.http.endpoints import ENDPOINTS
from broker_shim.serve.http.figures.recent_figures import RecentFigures
from broker_shim.serve.http.figures.series_answers import SeriesKept
from broker_shim.serve.http.loop_calls import LoopCalls
from broker_shim.serve.http.port.http_connection import Patience
from broker_shim.serve.http.port.http_port import HttpPort, PortLimits
from broker_shim.serve.http.port.places import MOST_HELD_BYTES
from broker_shim.serve.http.reports.probes import OF_MONITOR
from broker_shim.serve.http.router import EndpointTable, RequestRouter
from broker_shim.serve.probes import Probes
from broker_shim.store.interface import BrokerStore
from sparkstore.control.audit import Audit
from sparkstore.control.socket_address import SOCKET_NAME, SocketAddress

_log = logging.getLogger(__name__)

OPTION = "--http"
EVERY = (*console_endpoints(), *ENDPOINTS)
"""All that the port of `--http` answers."""
_API, _CONSOLE = EndpointTable(ENDPOINTS), EndpointTable(EVERY)
_PROBES = EndpointTable(OF_MONITOR, "/metrics, /healthz and /readyz are what")
_LEAST_BATCH_BYTES, _BODY_SLACK_BYTES = 4 << 20, 1 << 20
"""Content in one request of a replay, however small a message must be; and what is around it."""
_MONITOR_CONNECTIONS, _OWNERS_CONNECTIONS, _OWNERS_BACKLOG = 32, 64, 1024
_OWNERS_HEAD_BYTES = 1 << 17
"""The longest name of a queue has 10,000 characters: percent-encoded 120 kB."""
_STOP_S = 5.0


class HttpServer:
    """Serves one process over HTTP until `close`, on a thread of its own.

    Attributes:
        url: Where the console and the endpoints are; empty if only sockets in the root are served.
        ports: What accepts; read on this thread only.
    """

    def __init__(self, probes: Probes, settings: BrokerSettings) -> None:
        """Begin without a port."""
        self.url = ""
        self.ports: list[HttpPort] = []
        self._probes, self._settings = probes, settings
        self._routers: list[RequestRouter] = []
        self._served: ServedBroker | None = None
        self._socket_path: Path | None = None
        self._ending: asyncio.Task[None] | None = None
        self._loop, self._closing = asyncio.new_event_loop(), asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self._thread.start()

    def listen(
        self,
        listening: socket.socket,
        guard: Guard,
        *,
        is_loopback: bool,
        patience: Patience = Patience(),  # noqa: B008  # a value
    ) -> None:
        """Answer whoever logs in: probes at once, and all else while a broker is served."""
        settings = self._settings
        limits = PortLimits(settings.max_connections, settings.handshake_timeout_s, patience)
        authenticator = Logins(guard, is_loopback=is_loopback)
        router = RequestRouter(_CONSOLE, authenticator, self._probes)
        self._listen(router, listening, guard, limits)

    def listen_to_owner(self, folder: Path, audit: Audit) -> None:
        """Answer the owner of a root at `<root>/control.sock`, whatever a killed broker left there.

        The caller has the writer's lock, so no live broker can be listening on it.

        Raises:
            OSError: The folder cannot be written.
        """
        path = folder / SOCKET_NAME
        path.unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX)
        try:
            os.fchmod(listening.fileno(), 0o600)  # before the file is there: no gap
            with SocketAddress(folder) as address:
                listening.bind(address)
            listening.listen(_OWNERS_BACKLOG)
        except OSError:
            listening.close()
            raise
        self._socket_path = path
        messages = max(self._settings.max_message_bytes, _LEAST_BATCH_BYTES)
        limits = PortLimits(
            _OWNERS_CONNECTIONS,
            most_held_bytes=MOST_HELD_BYTES + _body_bytes(messages),
            most_head_bytes=_OWNERS_HEAD_BYTES,
        )
        router = RequestRouter(_API, RootOwner(audit), self._probes, _body_bytes(messages))
        self._listen(router, listening, Guard(SecuritySettings(), audit=audit), limits)

    def listen_to_monitor(self, listening: socket.socket) -> None:
        """Answer probes and metrics to whoever reaches a port."""
        authenticator = Logins(guard := Guard(SecuritySettings()), is_loopback=True)
        router = RequestRouter(_PROBES, authenticator, self._probes)
        self._listen(router, listening, guard, PortLimits(_MONITOR_CONNECTIONS))

    def serving(
        self, loop: Loop, turns: OrderTurns, store: BrokerStore, root_id: str | None = None
    ) -> None:
        """Serve the broker that carries out these orders from now on."""
        recent = RecentFigures(lambda: turns.decider.broker, loop.later)
        loop.post(recent.sample)
        calls = LoopCalls(loop, turns)
        self._now(ServedBroker(turns.decider, store, calls, root_id, recent, SeriesKept()))

    def stopping(self) -> None:
        """Ask the broker nothing any more, since its loop does not come round.

        The control socket is gone when this returns, so that whoever finds nobody there takes the
        writer's lock, which is let go of next.
        """
        self._now(None)
        path, self._socket_path = self._socket_path, None
        if path is not None:
            path.unlink(missing_ok=True)
            asyncio.run_coroutine_threadsafe(self._end_owner(), self._loop).result(_STOP_S)

    def close(self) -> None:
        """Answer nobody any more."""
        self.stopping()
        with suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(_STOP_S)

    def _listen(
        self,
        router: RequestRouter,
        listening: socket.socket,
        guard: Guard,
        limits: PortLimits,
    ) -> None:
        router.served = self._served
        self._routers.append(router)

        async def begin() -> None:
            self.ports.append(HttpPort(router.answer, listening, guard, limits))

        asyncio.run_coroutine_threadsafe(begin(), self._loop).result(_STOP_S)

    async def _end_owner(self) -> None:
        self.ports[-1].end_listening()
        self._ending = asyncio.get_running_loop().create_task(self.ports[-1].close())

    def _now(self, served: ServedBroker | None) -> None:
        self._served = served
        for router in self._routers:
            router.served = served

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        await self._closing.wait()
        for port in self.ports:
            await port.close()


def _body_bytes(message_bytes: int) -> int:
    """Return how long a body may be that has so much of messages, as text."""
    return 2 * message_bytes + _BODY_SLACK_BYTES


def listen_for_metrics(server: HttpServer, text: str) -> str:
    """Have the port that `--metrics-listen HOST:PORT` asks for, and return its URL.

    Raises:
        InvalidRequest: The address is none, or its port is taken.
    """
    address = parse_listen(text, "--metrics-listen")
    try:
        listening = listening_socket(address)
    except OSError as reason:
        raise InvalidRequest(f"--metrics-listen {reason.strerror}") from reason
    url = f"http://{address.url_host}:{listening.getsockname()[1]}"
    if not address.is_loopback:
        text = "INSECURE: whoever reaches %s may read the names and figures of all queues"
        _log.warning(text, url)
    server.listen_to_monitor(listening)
    return url


def listen_over_http(server: HttpServer, options: argparse.Namespace, guard: Guard) -> None:
    """Have the port that `--http HOST:PORT` asks for; it answers probes at once.

    Raises:
        InvalidRequest: The address is none, its port is taken, or it would be open to everybody.
    """
    address, settings = parse_listen(options.http, OPTION), security_of(options)
    offered_mechanisms(
        settings,
        options.http,
        is_loopback=address.is_loopback,
        is_insecure=options.insecure,
        option=OPTION,
    )
    if not address.is_loopback and not settings.users:
        text = f"{OPTION} {options.http} is not a loopback address, and users log in by a password"
        raise InvalidRequest(f"{text}: give --users FILE")
    try:
        listening = listening_socket(address)
    except OSError as reason:
        message = f"{OPTION} {reason.strerror}: give another port, or stop what has this one"
        raise InvalidRequest(message) from reason
    scheme = "http" if guard.context is None else "https"
    server.url = f"{scheme}://{address.url_host}:{listening.getsockname()[1]}"
    server.listen(listening, guard, is_loopback=address.is_loopback)
