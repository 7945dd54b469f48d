"""The thread of the HTTP port, on a loop of its own; `port` has what it accepts and for how long.

It answers before the store is open, so that probes see a long recovery.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import threading
from contextlib import suppress

from broker_shim.broker.settings import BrokerSettings
from broker_shim.broker.storage.loop import Loop
from broker_shim.broker.virtual_host import Broker
from broker_shim.errors import InvalidRequest
from broker_shim.security.guard import Guard
from broker_shim.security.security_options import security_of
from broker_shim.security.security_settings import offered_mechanisms
from broker_shim.serve.administration.order_turns import OrderTurns
from broker_shim.serve.bind_address import listening_socket, parse_listen
from broker_shim.serve.http.application import Gate, application_of
from broker_shim.serve.http.calls import House, Probes
from broker_shim.serve.http.console.console_files import console_endpoints
from broker_shim.serve.http.endpoints import ENDPOINTS
from broker_shim.serve.http.figures.figure_endpoints import FIGURE_ENDPOINTS
from broker_shim.serve.http.figures.recent_figures import RecentFigures
from broker_shim.serve.http.figures.series_answers import SeriesKept
from broker_shim.serve.http.loop_calls import LoopCalls
from broker_shim.serve.http.openapi import description_of
from broker_shim.serve.http.operations.repair_endpoints import REPAIR_ENDPOINTS
from broker_shim.serve.http.port.http_connection import Patience
from broker_shim.serve.http.port.http_port import HttpPort
from broker_shim.store.interface import BrokerStore

OPTION = "--http"
_DESCRIBED = (*ENDPOINTS, *REPAIR_ENDPOINTS, *FIGURE_ENDPOINTS)
EVERY = (*console_endpoints(), *_DESCRIBED, description_of(_DESCRIBED))
"""All that the port answers."""
_STOP_S = 5.0


class HttpServer:
    """Serves one broker over HTTP until `close`, on a thread of its own.

    Attributes:
        url: Where the console and the endpoints are.
        port: What accepts; read on the port's thread only.
    """

    port: HttpPort

    def __init__(
        self,
        gate: Gate,
        listening: socket.socket,
        url: str,
        guard: Guard,
        settings: BrokerSettings,
        patience: Patience = Patience(),  # noqa: B008  # a value
    ) -> None:
        """Answer at once: probes, and all else once the broker is `serving`."""
        self.url = url
        self._gate, self._listening = gate, listening
        self._guard, self._settings, self._patience = guard, settings, patience
        self._loop, self._closing = asyncio.new_event_loop(), asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self._thread.start()

    def serving(self, loop: Loop, broker: Broker, store: BrokerStore, turns: OrderTurns) -> None:
        """Serve this broker from now on."""
        recent = RecentFigures(broker, loop.later)
        loop.post(recent.sample)
        calls = LoopCalls(loop, turns)
        self._gate.house = House(broker, store, calls, recent, SeriesKept())

    def stopping(self) -> None:
        """Ask the broker nothing any more, since its loop does not come round."""
        self._gate.house = None

    def close(self) -> None:
        """Answer nobody any more."""
        self.stopping()
        with suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(_STOP_S)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        settings = self._settings
        self.port = HttpPort(
            application_of(self._gate, EVERY),
            self._listening,
            self._guard,
            settings.max_connections,
            settings.handshake_timeout_s,
            self._patience,
        )
        await self._closing.wait()
        await self.port.close()


def http_server_of(
    options: argparse.Namespace, guard: Guard, probes: Probes, broker: BrokerSettings
) -> HttpServer:
    """Make the server that `--http HOST:PORT` asks for; it answers probes at once.

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
    url = f"{scheme}://{address.url_host}:{listening.getsockname()[1]}"
    gate = Gate(guard, probes, is_loopback=address.is_loopback)
    return HttpServer(gate, listening, url, guard, broker)
