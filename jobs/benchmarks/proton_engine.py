"""Proton's engine for one peer, as the first listener drove it: bytes in, events, bytes out.

Its raw events are looked at without proton's Python wrappers. The pointers it hands out are
proton's: a link's lives until it is freed, a delivery's until it is settled or its link is freed,
all of them until `free`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from cproton import (
    PN_EOS,
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
    pn_delivery,
    pn_link_advance,
    pn_link_send,
    pn_sasl,
    pn_sasl_allowed_mechs,
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

from broker_shim.broker.settings import BrokerSettings
from broker_shim.listener_1_0.conditions import Refusal


class Engine:
    """The protocol's state with one peer, on the accepting side."""

    def __init__(self, settings: BrokerSettings) -> None:
        self._collector = pn_collector()
        self._connection = pn_connection()
        self._transport = pn_transport()
        self._is_freed = False
        self._is_garbled = False
        pn_transport_set_server(self._transport)
        pn_transport_set_max_frame(self._transport, settings.max_frame_bytes)
        pn_transport_set_channel_max(self._transport, settings.max_sessions - 1)
        pn_transport_set_idle_timeout(self._transport, int(settings.idle_timeout_s * 1000))
        pn_sasl_allowed_mechs(pn_sasl(self._transport), "ANONYMOUS")
        pn_connection_set_container(self._connection, "sparkstore")
        pn_connection_collect(self._connection, self._collector)
        pn_transport_bind(self._transport, self._connection)

    @property
    def container_id(self) -> str | None:
        """The peer's, once it has opened."""
        return text_from(pn_connection_remote_container, self._connection)

    @property
    def room_bytes(self) -> int:
        """How many bytes `receive` takes now; negative when it takes no more at all."""
        return int(pn_transport_capacity(self._transport))

    @property
    def failure(self) -> str | None:
        """What the peer did wrong, in printable ASCII; None if nothing."""
        condition = pn_transport_condition(self._transport)
        if not pn_condition_is_set(condition):
            return "bytes that are not AMQP 1.0" if self._is_garbled else None
        text = pn_condition_get_description(condition) or "no description"
        return ascii(text[:200])

    def receive(self, received: bytes) -> None:
        """Bytes from the peer, at most `room_bytes`; nothing means that it sends no more."""
        if received:
            pn_transport_push(self._transport, received)
            # Of some garbage proton says nothing but that it takes no more.
            self._is_garbled |= self.room_bytes < 0 and self.container_id is None
        else:
            pn_transport_close_tail(self._transport)

    def events(self) -> Iterator[Any]:
        """What happened since; an event and its pointers are valid until the next is asked for."""
        while not isnull(event := pn_collector_peek(self._collector)):
            try:
                yield event
            finally:
                pn_collector_pop(self._collector)

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

    def tick(self, now_s: float) -> None:
        """Heartbeats and the idle timeout, by a clock that only rises."""
        pn_transport_tick(self._transport, int(now_s * 1000))

    def open(self) -> None:
        """Answer the peer's open."""
        pn_connection_open(self._connection)

    def close(self, refusal: Refusal | None = None) -> None:
        """End it politely, for a reason or none."""
        if refusal is not None:
            condition = pn_connection_condition(self._connection)
            pn_condition_set_name(condition, refusal.condition)
            pn_condition_set_description(condition, refusal.description)
        pn_connection_open(self._connection)
        pn_connection_close(self._connection)

    def free(self) -> None:
        """Let go of proton's memory; may be called twice."""
        if self._is_freed:
            return
        self._is_freed = True
        pn_transport_close_head(self._transport)
        pn_transport_unbind(self._transport)
        pn_collector_free(self._collector)
        pn_decref(self._transport)
        pn_decref(self._connection)


def text_from(read: Callable[[Any], str | None], source: Any) -> str | None:
    """What the peer wrote; what is not UTF-8 in it (proton does not check) as escapes."""
    try:
        return read(source)
    except UnicodeDecodeError as reason:
        return reason.object.decode("utf-8", "backslashreplace")


def send(link: Any, tag: int, encoded: bytes) -> Any:
    """Write one delivery whole; its pointer, valid until it is settled or the link freed."""
    delivery = pn_delivery(link, tag.to_bytes(8, "big"))
    pn_link_send(link, encoded)
    pn_link_advance(link)
    return delivery
