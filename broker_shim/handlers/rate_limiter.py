"""An add-on that lets a connection send so many frames a second, and no more: the rest waits."""

from __future__ import annotations

import math
from collections import deque

from broker_shim.errors import InvalidRequest
from broker_shim.framing.frames import Frame
from broker_shim.handlers.handler import FrameHandler
from broker_shim.handlers.handler_chain import HandlerContext


class RateLimiter:
    """A token bucket before everything else; heartbeats and a close wait in line, too.

    Nothing more is read while frames wait, so the peer is held up by its socket, and what waits
    here is what one read brought.
    """

    def __init__(
        self,
        then: FrameHandler,
        context: HandlerContext,
        *,
        frames_per_s: float,
        burst: int | None = None,
    ) -> None:
        """Start with a full bucket of tokens.

        Args:
            then: The next handler.
            context: The connection that is limited.
            frames_per_s: How many frames a second pass, in the long run.
            burst: How many pass at once; None: those of a second.

        Raises:
            InvalidRequest: The numbers are not above 0, or are none.
        """
        is_rate = type(frames_per_s) in {int, float} and 0 < frames_per_s < math.inf
        if not is_rate or not (burst is None or (type(burst) is int and burst > 0)):
            message = "rate-limiter: frames_per_s is above 0, burst a whole number of at least 1"
            raise InvalidRequest(message)
        self._then, self._context = then, context
        self._rate, self._most = frames_per_s, max(1.0, frames_per_s if burst is None else burst)
        self._tokens, self._counted_at_s = self._most, context.now_s()
        self._waiting: deque[Frame] = deque()

    def handle_frame(self, frame: Frame) -> None:
        """Forward a frame if the rate allows it, or hold it back until it is due."""
        if self._waiting or not self._may_pass():
            self._waiting.append(frame)
            self._context.delay(self)
        else:
            self._then.handle_frame(frame)

    def due_at_s(self) -> float | None:
        """Return when the next frame may pass; None if none waits (`Delayed.due_at_s`)."""
        if not self._waiting:
            return None
        return self._counted_at_s + max(0.0, 1.0 - self._tokens) / self._rate

    def go_on(self) -> None:
        """Forward the waiting frames that may pass now (`Delayed.go_on`)."""
        while self._waiting and self._may_pass():
            self._then.handle_frame(self._waiting.popleft())

    def _may_pass(self) -> bool:
        now_s = self._context.now_s()
        gained = (now_s - self._counted_at_s) * self._rate
        self._tokens, self._counted_at_s = min(self._most, self._tokens + gained), now_s
        if self._tokens < 1.0 - _ROUNDING:
            return False
        self._tokens -= 1.0
        return True


_ROUNDING = 1e-9
