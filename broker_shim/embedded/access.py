"""Who may connect, and how they say who they are: the one place that SASL is chosen in."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker_shim.embedded.settings import BrokerSettings
from broker_shim.protocol_1_0.mechanisms import Anonymous
from broker_shim.protocol_1_0.sasl import Mechanisms
from broker_shim.protocol_1_0.settings import Settings

_CONTAINER_ID = "sparkstore"
_LEAST_WINDOW = 16


@dataclass(frozen=True, slots=True)
class Access:
    """How a peer is let in.

    Attributes:
        mechanisms: Offered, in the order of preference.
        requires_sasl: A peer that does not authenticate is refused.
    """

    mechanisms: Mechanisms = field(default_factory=lambda: {"ANONYMOUS": Anonymous})
    requires_sasl: bool = False

    def settings(self, settings: BrokerSettings) -> Settings:
        """The limits of one connection, in the protocol's terms: a session's bytes are frames."""
        frame_bytes = settings.max_frame_bytes
        return Settings(
            _CONTAINER_ID,
            max_frame_bytes=frame_bytes,
            max_sessions=settings.max_sessions,
            session_window=max(_LEAST_WINDOW, settings.session_bytes // frame_bytes),
            idle_timeout_s=settings.idle_timeout_s,
            handshake_timeout_s=settings.handshake_timeout_s,
            requires_sasl=self.requires_sasl,
        )


LOOPBACK = Access()
"""Anybody on this machine, as on a socket that nobody else reaches."""
