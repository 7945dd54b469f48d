"""An add-on that logs what passes, wherever it stands: frames, controls, commands."""

from __future__ import annotations

import logging

from broker_shim.amqp_0_10.definitions import SegmentType
from broker_shim.errors import InvalidRequest
from broker_shim.framing.assembly import Assembly
from broker_shim.framing.frames import Frame
from broker_shim.handlers.handler import AssemblyHandler, FrameHandler
from broker_shim.handlers.handler_chain import HandlerContext

_log = logging.getLogger(__name__)

_MOST_TEXT = 200


class FrameTracer:
    """Logs, and forwards everything as it is. What a login says is not logged."""

    def __init__(
        self, then: FrameHandler | AssemblyHandler, context: HandlerContext, *, name: str = "frames"
    ) -> None:
        """Trace frames for the next handler; `name` tells several tracers apart in the log.

        Raises:
            InvalidRequest: It is no text.
        """
        if not isinstance(name, str):
            raise InvalidRequest("frame-tracer: name is text")
        self._then, self._peer, self._name = then, context.peer, name

    def handle_frame(self, frame: Frame) -> None:
        """Log a frame, and forward it."""
        kind = SegmentType(frame.type).name.lower()
        text = "%s %s: channel %d %s frame, flags %x, %d bytes"
        _log.info(
            text, self._name, self._peer, frame.channel, kind, frame.flags, len(frame.payload)
        )
        self._then.handle_frame(frame)

    def handle_assembly(self, assembly: Assembly) -> None:
        """Log an assembly's method, and forward the assembly."""
        name = assembly.method.NAME
        text = name if name.startswith("connection.") else repr(assembly.method)[:_MOST_TEXT]
        _log.info("%s %s: channel %d %s", self._name, self._peer, assembly.channel, text)
        self._then.handle_assembly(assembly)  # type: ignore[union-attr]  # stands where there are
