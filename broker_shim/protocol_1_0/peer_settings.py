"""Set the limits of a peer, and the values that we tell it of ourselves."""

from __future__ import annotations

from dataclasses import dataclass

from broker_shim.amqp_1_0.definitions import MIN_MAX_FRAME_SIZE
from broker_shim.protocol_1_0.codec.errors import InvalidCommand


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits of one connection; together they bound what a peer can make us remember.

    Attributes:
        container_id: The name of this container, which our open tells every peer.
        max_frame_bytes: Most bytes of a frame with its header, both ways; at least 512.
        max_sessions: At a time, at most 65,536.
        max_links: Most links of one session at a time.
        max_state_bytes: What a connection's open, begins and attaches take in memory.
        session_window: Transfer frames that a session takes before it tells of more.
        idle_timeout_s: A peer that is silent for so long is gone; the half is what it is told.
        handshake_timeout_s: From the first byte to the peer's open.
        requires_sasl: Refuse a peer that does not authenticate.
    """

    container_id: str
    max_frame_bytes: int = 65_536
    max_sessions: int = 256
    max_links: int = 1_024
    max_state_bytes: int = 16_777_216
    session_window: int = 2_048
    idle_timeout_s: float = 60.0
    handshake_timeout_s: float = 10.0
    requires_sasl: bool = True

    def __post_init__(self) -> None:
        checks = (
            (self.max_frame_bytes >= MIN_MAX_FRAME_SIZE, "max_frame_bytes: 512 or more"),
            (0 < self.max_sessions <= 65_536, "max_sessions: from 1 to 65,536"),
            (0 < self.max_links <= 1 << 32, "max_links: from 1 to 2**32"),
            (0 < self.session_window < 1 << 31, "session_window: from 1 to 2**31 - 1"),
            (self.handshake_timeout_s > 0, "handshake_timeout_s: more than 0"),
            (0 < self.idle_timeout_s < 1 << 31, "idle_timeout_s: more than 0, below 2**31"),
        )
        for holds, text in checks:
            if not holds:
                raise InvalidCommand(text)
