"""One AMQP connection: bytes in, events of proton, bytes out. No socket here.

Proton decodes frames and keeps the protocol's state; its raw events are looked at without its
Python wrappers (see the package's decision). Whatever a peer does wrong ends its own connection
and nothing else.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

from cproton import (
    PN_CONNECTION_REMOTE_CLOSE,
    PN_CONNECTION_REMOTE_OPEN,
    PN_DELIVERY,
    PN_EOS,
    PN_LINK_FLOW,
    PN_LINK_REMOTE_CLOSE,
    PN_LINK_REMOTE_DETACH,
    PN_LINK_REMOTE_OPEN,
    PN_LOCAL_CLOSED,
    PN_SESSION_REMOTE_CLOSE,
    PN_SESSION_REMOTE_OPEN,
    PN_TRANSPORT_ERROR,
    isnull,
    pn_collector,
    pn_collector_free,
    pn_collector_peek,
    pn_collector_pop,
    pn_condition_get_description,
    pn_condition_is_set,
    pn_condition_set_description,
    pn_condition_set_name,
    pn_connection,
    pn_connection_close,
    pn_connection_collect,
    pn_connection_condition,
    pn_connection_open,
    pn_connection_remote_container,
    pn_connection_set_container,
    pn_decref,
    pn_delivery_link,
    pn_event_delivery,
    pn_event_link,
    pn_event_session,
    pn_event_type,
    pn_link_close,
    pn_link_condition,
    pn_link_detach,
    pn_link_free,
    pn_link_open,
    pn_link_session,
    pn_link_state,
    pn_sasl,
    pn_sasl_allowed_mechs,
    pn_session_close,
    pn_session_free,
    pn_session_open,
    pn_session_set_incoming_capacity,
    pn_transport,
    pn_transport_bind,
    pn_transport_capacity,
    pn_transport_close_head,
    pn_transport_close_tail,
    pn_transport_condition,
    pn_transport_peek,
    pn_transport_pending,
    pn_transport_pop,
    pn_transport_push,
    pn_transport_set_channel_max,
    pn_transport_set_idle_timeout,
    pn_transport_set_max_frame,
    pn_transport_set_server,
    pn_transport_tick,
    pn_transport_unbind,
)

from broker_shim.embedded.attach import attach
from broker_shim.embedded.conditions import CONNECTION_FORCED, INTERNAL_ERROR, Refusal

if TYPE_CHECKING:
    from broker_shim.embedded.broker import Broker

_log = logging.getLogger(__name__)
_numbers = count(1)


class LinkEndpoint(Protocol):
    """The live object at our end of an attached link."""

    @property
    def is_gone(self) -> bool:
        """True once the link ended."""

    def start(self) -> None:
        """The link is attached on both sides."""

    def gone(self) -> None:
        """It ended; called once."""

    def on_flow(self) -> None:
        """Credit, a drain, or room to write again."""

    def on_delivery(self, delivery: Any) -> None:
        """A delivery came or changed."""


def now_us() -> int:
    """The time, UTC µs."""
    return time.time_ns() // 1000


class Connection:
    """Proton's engine for one peer."""

    def __init__(self, broker: Broker, has_output: Callable[[Connection], None]) -> None:
        self.broker = broker
        self.now_us = now_us
        self.number = next(_numbers)
        self.opened_at_s = time.monotonic()
        self.is_open = False
        self._has_output = has_output
        self._links: dict[Any, LinkEndpoint] = {}
        self._waiting_for_room: list[LinkEndpoint] = []
        self._is_freed = False
        self._collector = pn_collector()
        self._connection = pn_connection()
        self._transport = pn_transport()
        self._set_up()

    @property
    def container(self) -> str:
        """The peer's container id, or a name of ours if it gave none."""
        return pn_connection_remote_container(self._connection) or f"connection-{self.number}"

    @property
    def room_bytes(self) -> int:
        """How many bytes `receive` takes now; negative when it takes no more at all."""
        return int(pn_transport_capacity(self._transport))

    def has_output(self) -> None:
        """Something is to be written."""
        self._has_output(self)

    def wait_for_room(self, endpoint: LinkEndpoint) -> None:
        """Have `on_flow` called when less waits to be written."""
        if endpoint not in self._waiting_for_room:
            self._waiting_for_room.append(endpoint)

    def receive(self, received: bytes) -> None:
        """Bytes from the peer, at most `room_bytes`; nothing means that it sends no more."""
        if received:
            pn_transport_push(self._transport, received)
        else:
            pn_transport_close_tail(self._transport)
        self.handle_events()

    def handle_events(self) -> None:
        """Act on everything that proton saw; a fault of ours ends this connection only."""
        try:
            self._handle_events()
        except Exception:  # one connection must not end the others
            _log.exception("connection %d: an event failed", self.number)
            self.close(Refusal(INTERNAL_ERROR, "the broker failed on this connection: see its log"))

    def output(self, most_bytes: int) -> bytes | None:
        """The next bytes to write; b"" for nothing now, None for nothing ever again."""
        pending = pn_transport_pending(self._transport)
        if pending == PN_EOS or pending < 0:
            return None
        if pending == 0:
            return b""
        return bytes(pn_transport_peek(self._transport, min(pending, most_bytes))[1])

    def written(self, byte_count: int) -> None:
        """So much of `output` is with the peer."""
        pn_transport_pop(self._transport, byte_count)
        if self._waiting_for_room:
            waiting, self._waiting_for_room = self._waiting_for_room, []
            for endpoint in waiting:
                endpoint.on_flow()

    def tick(self, now_s: float) -> None:
        """Heartbeats and the idle timeout; call it about once a second."""
        pn_transport_tick(self._transport, int(now_s * 1000))
        self.handle_events()
        self.has_output()

    def detach(self, link: Any, refusal: Refusal) -> None:
        """End a link for a reason."""
        condition = pn_link_condition(link)
        pn_condition_set_name(condition, refusal.condition)
        pn_condition_set_description(condition, refusal.description)
        pn_link_close(link)
        self.has_output()

    def attached(self, link: Any, endpoint: LinkEndpoint) -> None:
        """A link is served from now on."""
        self._links[link] = endpoint
        endpoint.start()
        self.has_output()

    def is_linked(self, link: Any) -> bool:
        """True while a link is served or about to be: an answer may still be given on it."""
        return not self._is_freed and link in self._links

    def expect(self, link: Any, endpoint: LinkEndpoint) -> None:
        """A link whose attach is under way: remembered, so that its end is noticed."""
        self._links[link] = endpoint

    def lost(self) -> None:
        """All links are gone, as far as the broker goes; the peer may still be told."""
        links, self._links = self._links, {}
        for endpoint in links.values():
            endpoint.gone()
        self._waiting_for_room.clear()

    def close(self, refusal: Refusal | None = None) -> None:
        """End it from our side, politely."""
        if refusal is not None:
            condition = pn_connection_condition(self._connection)
            pn_condition_set_name(condition, refusal.condition)
            pn_condition_set_description(condition, refusal.description)
        pn_connection_open(self._connection)
        pn_connection_close(self._connection)
        self.has_output()

    def close_forced(self, reason: str) -> None:
        """End it because the broker stops."""
        self.close(Refusal(CONNECTION_FORCED, reason))

    def free(self) -> None:
        """Let go of proton's memory; every link is told that it is gone before."""
        if self._is_freed:
            return
        self.lost()
        self._is_freed = True
        pn_transport_close_head(self._transport)
        pn_transport_unbind(self._transport)
        pn_collector_free(self._collector)
        pn_decref(self._transport)
        pn_decref(self._connection)

    def _set_up(self) -> None:
        settings = self.broker.settings
        pn_transport_set_server(self._transport)
        pn_transport_set_max_frame(self._transport, settings.max_frame_bytes)
        pn_transport_set_channel_max(self._transport, settings.max_sessions - 1)
        pn_transport_set_idle_timeout(self._transport, int(settings.idle_timeout_s * 1000))
        pn_sasl_allowed_mechs(pn_sasl(self._transport), "ANONYMOUS")
        pn_connection_set_container(self._connection, "sparkstore")
        pn_connection_collect(self._connection, self._collector)
        pn_transport_bind(self._transport, self._connection)

    def _handle_events(self) -> None:
        collector = self._collector
        while not isnull(event := pn_collector_peek(collector)):
            kind = pn_event_type(event)
            if kind == PN_DELIVERY:
                delivery = pn_event_delivery(event)
                endpoint = self._links.get(pn_delivery_link(delivery))
                if endpoint is not None:
                    endpoint.on_delivery(delivery)
            else:
                handler = _HANDLERS.get(kind)
                if handler is not None:
                    handler(self, event)
            pn_collector_pop(collector)
        self.has_output()

    def _opened(self, _event: Any) -> None:
        self.is_open = True
        pn_connection_open(self._connection)

    def _session_opened(self, event: Any) -> None:
        session = pn_event_session(event)
        pn_session_set_incoming_capacity(session, self.broker.settings.session_bytes)
        pn_session_open(session)

    def _link_opened(self, event: Any) -> None:
        attach(self, pn_event_link(event))

    def _flow(self, event: Any) -> None:
        endpoint = self._links.get(pn_event_link(event))
        if endpoint is not None:
            endpoint.on_flow()

    def _link_closed(self, event: Any) -> None:
        link = pn_event_link(event)
        self._end(link)
        if not pn_link_state(link) & PN_LOCAL_CLOSED:
            pn_link_close(link)
        pn_link_free(link)

    def _link_detached(self, event: Any) -> None:
        """Links do not outlive a detach yet: what a consumer held is given back."""
        link = pn_event_link(event)
        self._end(link)
        pn_link_detach(link)
        pn_link_free(link)

    def _session_closed(self, event: Any) -> None:
        session = pn_event_session(event)
        for link in [each for each in self._links if pn_link_session(each) == session]:
            self._end(link)
        pn_session_close(session)
        pn_session_free(session)

    def _closed(self, _event: Any) -> None:
        self.lost()
        pn_connection_close(self._connection)

    def _failed(self, _event: Any) -> None:
        condition = pn_transport_condition(self._transport)
        if pn_condition_is_set(condition):
            self.broker.metrics.protocol_errors += 1
            text = pn_condition_get_description(condition)
            _log.info("connection %d ended: %.200s", self.number, _printable(text))

    def _end(self, link: Any) -> None:
        endpoint = self._links.pop(link, None)
        if endpoint is not None:
            endpoint.gone()


def _printable(text: str | None) -> str:
    return (text or "").encode("ascii", "backslashreplace").decode().replace("\n", " ")


_HANDLERS: dict[int, Callable[[Connection, Any], None]] = {
    PN_CONNECTION_REMOTE_OPEN: Connection._opened,  # noqa: SLF001  # a table of its own methods
    PN_CONNECTION_REMOTE_CLOSE: Connection._closed,  # noqa: SLF001
    PN_SESSION_REMOTE_OPEN: Connection._session_opened,  # noqa: SLF001
    PN_SESSION_REMOTE_CLOSE: Connection._session_closed,  # noqa: SLF001
    PN_LINK_REMOTE_OPEN: Connection._link_opened,  # noqa: SLF001
    PN_LINK_REMOTE_CLOSE: Connection._link_closed,  # noqa: SLF001
    PN_LINK_REMOTE_DETACH: Connection._link_detached,  # noqa: SLF001
    PN_LINK_FLOW: Connection._flow,  # noqa: SLF001
    PN_TRANSPORT_ERROR: Connection._failed,  # noqa: SLF001
}
