"""One AMQP connection: its sessions and links, and what their events mean to the broker.

Whatever a peer does wrong ends its own connection and nothing else.
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
    PN_LINK_FLOW,
    PN_LINK_REMOTE_CLOSE,
    PN_LINK_REMOTE_DETACH,
    PN_LINK_REMOTE_OPEN,
    PN_LOCAL_CLOSED,
    PN_SESSION_REMOTE_CLOSE,
    PN_SESSION_REMOTE_OPEN,
    pn_condition_set_description,
    pn_condition_set_name,
    pn_delivery_link,
    pn_event_delivery,
    pn_event_link,
    pn_event_session,
    pn_event_type,
    pn_link_close,
    pn_link_condition,
    pn_link_detach,
    pn_link_free,
    pn_link_session,
    pn_link_state,
    pn_session_close,
    pn_session_free,
    pn_session_open,
    pn_session_set_incoming_capacity,
)

from broker_shim.embedded.attach import attach
from broker_shim.embedded.conditions import CONNECTION_FORCED, INTERNAL_ERROR, Refusal
from broker_shim.embedded.engine import Engine

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
        self.engine = Engine(broker.settings)

    @property
    def container(self) -> str:
        """The peer's container id, or a name of ours if it gave none."""
        return self.engine.container_id or f"connection-{self.number}"

    def has_output(self) -> None:
        """Something is to be written."""
        self._has_output(self)

    def wait_for_room(self, endpoint: LinkEndpoint) -> None:
        """Have `on_flow` called when less waits to be written."""
        if endpoint not in self._waiting_for_room:
            self._waiting_for_room.append(endpoint)

    def receive(self, received: bytes) -> None:
        """See `Engine.receive`."""
        self.engine.receive(received)
        self.handle_events()

    def handle_events(self) -> None:
        """Act on everything that proton saw; a fault of ours ends this connection only."""
        try:
            self._handle_events()
        except Exception:  # noqa: BLE001  # one connection must not end the others
            _log.exception("connection %d: an event failed", self.number)
            self.close(Refusal(INTERNAL_ERROR, "the broker failed on this connection: see its log"))

    def written(self, byte_count: int) -> None:
        """So much of `output` is with the peer."""
        self.engine.written(byte_count)
        if self._waiting_for_room:
            waiting, self._waiting_for_room = self._waiting_for_room, []
            for endpoint in waiting:
                endpoint.on_flow()

    def tick(self, now_s: float) -> None:
        """Heartbeats and the idle timeout; call it about once a second."""
        self.engine.tick(now_s)
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

    def expect(self, link: Any, endpoint: LinkEndpoint) -> None:
        """A link whose attach is under way: remembered, so that its end is noticed."""
        self._links[link] = endpoint

    def lost(self) -> None:
        """All links are gone, as far as the broker goes; the peer may still be told."""
        links, self._links = self._links, {}
        for endpoint in links.values():
            try:
                endpoint.gone()
            except Exception:  # noqa: BLE001  # one link must not keep what the others held
                _log.exception("connection %d: a link could not be ended", self.number)
        self._waiting_for_room.clear()

    def close(self, refusal: Refusal | None = None) -> None:
        """End it from our side, politely."""
        self.engine.close(refusal)
        self.has_output()

    def close_forced(self, reason: str) -> None:
        """End it because the broker stops."""
        self.close(Refusal(CONNECTION_FORCED, reason))

    def free(self) -> None:
        """Let go of proton's memory; every link is told that it is gone before."""
        self.lost()
        self._note_failure()
        self.engine.free()

    def _handle_events(self) -> None:
        for event in self.engine.events():
            kind = pn_event_type(event)
            if kind == PN_DELIVERY:
                delivery = pn_event_delivery(event)
                endpoint = self._links.get(pn_delivery_link(delivery))
                if endpoint is not None:
                    endpoint.on_delivery(delivery)
            elif kind in _HANDLERS:
                _HANDLERS[kind](self, event)
        self.has_output()

    def _opened(self, _event: Any) -> None:
        self.is_open = True
        self.engine.open()

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
        self.engine.close()

    def _note_failure(self) -> None:
        failure = self.engine.failure
        if failure is not None:
            self.broker.metrics.protocol_errors += 1
            _log.info("connection %d ended: %s", self.number, failure)

    def _end(self, link: Any) -> None:
        endpoint = self._links.pop(link, None)
        if endpoint is not None:
            endpoint.gone()


_HANDLERS: dict[int, Callable[[Connection, Any], None]] = {
    PN_CONNECTION_REMOTE_OPEN: Connection._opened,  # noqa: SLF001  # a table of its own methods
    PN_CONNECTION_REMOTE_CLOSE: Connection._closed,  # noqa: SLF001
    PN_SESSION_REMOTE_OPEN: Connection._session_opened,  # noqa: SLF001
    PN_SESSION_REMOTE_CLOSE: Connection._session_closed,  # noqa: SLF001
    PN_LINK_REMOTE_OPEN: Connection._link_opened,  # noqa: SLF001
    PN_LINK_REMOTE_CLOSE: Connection._link_closed,  # noqa: SLF001
    PN_LINK_REMOTE_DETACH: Connection._link_detached,  # noqa: SLF001
    PN_LINK_FLOW: Connection._flow,  # noqa: SLF001
}
