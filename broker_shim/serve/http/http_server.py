"""The thread and the port of HTTP: uvicorn over a listening socket, with TLS like the listener's.

It answers before the store is open, so that probes see a long recovery. A peer that sends no whole
request for `PATIENCE_S` is let go of, so silent sockets do not keep others out for long.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import socket
import ssl
import threading
from typing import Any

from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from broker_shim.broker.storage.loop import Loop
from broker_shim.broker.virtual_host import Broker
from broker_shim.errors import InvalidRequest
from broker_shim.security.guard import Guard
from broker_shim.security.security_options import security_of
from broker_shim.security.security_settings import offered_mechanisms
from broker_shim.security.tls import certificate_name, server_context
from broker_shim.serve.administration.order_turns import OrderTurns
from broker_shim.serve.bind_address import listening_socket, parse_listen
from broker_shim.serve.http.application import Gate, application_of
from broker_shim.serve.http.calls import House, Probes
from broker_shim.serve.http.console.console_files import console_endpoints
from broker_shim.serve.http.endpoints import ENDPOINTS
from broker_shim.serve.http.loop_calls import LoopCalls
from broker_shim.serve.http.openapi import description_of
from broker_shim.serve.http.operations.repair_endpoints import REPAIR_ENDPOINTS
from broker_shim.store.interface import BrokerStore

_log = logging.getLogger(__name__)

OPTION = "--http"
PATIENCE_S = 10.0
_DESCRIBED = (*ENDPOINTS, *REPAIR_ENDPOINTS)
EVERY = (*console_endpoints(), *_DESCRIBED, description_of(_DESCRIBED))
"""All that the port answers."""
_MOST_AT_ONCE, _STOP_S = 256, 5.0


class HttpServer:
    """Serves one broker over HTTP until `close`, on a thread of its own.

    Attributes:
        url: Where the console and the endpoints are.
    """

    def __init__(
        self,
        gate: Gate,
        listening: socket.socket,
        url: str,
        context: ssl.SSLContext | None = None,
    ) -> None:
        """Answer at once: probes, and all else once the broker is `serving`."""
        self.url = url
        self._gate, self._listening = gate, listening
        # Connections inherit it: asyncio sets it only where the socket names TCP as its protocol.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._server = Server(
            Config(
                application_of(gate, EVERY),
                http=_PatientProtocol,
                loop="asyncio",
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                limit_concurrency=_MOST_AT_ONCE,
                timeout_graceful_shutdown=1,
                ssl_context_factory=None if context is None else lambda *_: context,
            )
        )
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self._thread.start()

    def serving(self, loop: Loop, broker: Broker, store: BrokerStore, turns: OrderTurns) -> None:
        """Serve this broker from now on."""
        self._gate.house = House(broker, store, LoopCalls(loop, turns))

    def stopping(self) -> None:
        """Ask the broker nothing any more, since its loop does not come round."""
        self._gate.house = None

    def close(self) -> None:
        """Answer nobody any more."""
        self.stopping()
        self._server.should_exit = True
        self._thread.join(_STOP_S)
        self._listening.close()

    def _run(self) -> None:
        self._server.run(sockets=[self._listening])


class _PatientProtocol(H11Protocol):
    """A connection that ends unless a request comes in time."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin with a connection; see `asyncio.Protocol`."""
        tls = transport.get_extra_info("ssl_object")
        name = None if tls is None else certificate_name(tls.getpeercert())
        self.app_state = {**self.app_state, "certificate_name": name}
        super().connection_made(transport)
        self.loop.call_later(PATIENCE_S, self._look)

    def _look(self) -> None:
        if getattr(self, "cycle", None) is None:  # no request has come whole
            self.transport.close()


def http_server_of(options: argparse.Namespace, guard: Guard, probes: Probes) -> HttpServer:
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
    context = None
    if settings.tls is not None:
        context = server_context(settings.tls)
        context.sni_callback = _renewed(guard)
    try:
        listening = listening_socket(address)
    except OSError as reason:
        message = f"{OPTION} {reason.strerror}: give another port, or stop what has this one"
        raise InvalidRequest(message) from reason
    scheme = "http" if context is None else "https"
    url = f"{scheme}://{address.url_host}:{listening.getsockname()[1]}"
    gate = Gate(guard, probes, is_loopback=address.is_loopback)
    return HttpServer(gate, listening, url, context)


def _renewed(guard: Guard) -> Any:
    """Have each handshake use the certificate that the guard has now: SIGHUP renews it."""

    def use(connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        if guard.context is not None:
            connection.context = guard.context

    return use
