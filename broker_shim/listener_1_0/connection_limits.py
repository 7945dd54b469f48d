"""The limits of one connection, as its protocol takes them."""

from __future__ import annotations

from broker_shim.broker.settings import BrokerSettings
from broker_shim.protocol_1_0.peer_settings import Settings
from broker_shim.sockets.access import Access

_CONTAINER_ID = "sparkstore"
_LEAST_WINDOW = 16


def limits_of(access: Access, settings: BrokerSettings) -> Settings:
    """The limits of one connection, in the protocol's terms: a session's bytes are frames."""
    frame_bytes = settings.max_frame_bytes
    return Settings(
        _CONTAINER_ID,
        max_frame_bytes=frame_bytes,
        max_sessions=settings.max_sessions,
        max_links=settings.max_links,
        session_window=max(_LEAST_WINDOW, settings.session_bytes // frame_bytes),
        idle_timeout_s=settings.idle_timeout_s,
        handshake_timeout_s=settings.handshake_timeout_s,
        requires_sasl=access.guard.requires_login,
    )
