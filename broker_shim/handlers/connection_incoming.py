"""The first standard handler: methods are put together, and the connection's own are invoked."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from broker_shim.amqp_0_10.controls import CONTROLS, Control
from broker_shim.framing.assembly import MethodReader
from broker_shim.framing.errors import RemoteCommandError, RemoteFramingError
from broker_shim.framing.frames import Frame
from broker_shim.framing.order import FramingLimits
from broker_shim.handlers.handler import AssemblyHandler

_CONNECTION = {cls for cls in CONTROLS.values() if cls.NAME.startswith("connection.")}


class ConnectionControls(Protocol):
    """The connection's side of its frames: its own controls, and the session on each channel."""

    def connection_control(self, control: Control) -> None:
        """Handle a control of the connection.

        Raises:
            RemoteFramingError: It cannot come now.
        """

    def session_on(self, channel: int) -> AssemblyHandler | None:
        """The session's first handler; None: nothing may come on this channel, and is dropped.

        Raises:
            RemoteFramingError: The channel is none that may be used.
        """

    def holds(self, byte_count: int) -> None:
        """Count the bytes in memory of methods that have not come whole, on all channels."""

    def session_failed(self, channel: int, error: RemoteCommandError) -> None:
        """End the session on a channel, because its peer sent an invalid command."""


class ConnectionIncoming:
    """Connection incoming, a `FrameHandler`: the standard handler there."""

    def __init__(self, controls: ConnectionControls, limits: FramingLimits) -> None:
        self._controls = controls
        self._methods = MethodReader(limits)
        self._counted_bytes = 0

    def handle_next(self, frames: deque[Frame]) -> int:
        """Handle the first of some frames, and those after it that make messages with it.

        The frames of messages of ordinary size need not go through all handlers one by one. For
        where nobody stands before the standard handlers.

        Returns:
            How many frames it took off.
        """
        count, channel = len(frames), frames[0].channel
        session = self._controls.session_on(channel)
        run = None if session is None else self._methods.take_run(frames)
        if session is None or run is None:
            self.handle_frame(frames.popleft())
            return 1
        try:
            session.handle_assembly(run)
        except RemoteCommandError as error:
            self._controls.session_failed(channel, error)
        return count - len(frames)

    def handle_frame(self, frame: Frame) -> None:
        """Take a frame: a method of the connection, or a part for the session on its channel."""
        channel = frame.channel
        session = self._controls.session_on(channel)
        try:
            taken = self._methods.take(frame)
            if isinstance(taken, Frame):
                if session is not None:
                    session.handle_frame(taken)
            elif taken is not None and type(taken.method) in _CONNECTION:
                if channel:
                    text = f"{taken.method.NAME} on channel {channel}: it belongs on channel 0"
                    raise RemoteFramingError(text)
                self._controls.connection_control(taken.method)  # type: ignore[arg-type]
            elif taken is not None and session is not None:
                session.handle_assembly(taken)
        except RemoteCommandError as error:
            self._methods.drop(channel)
            if session is not None:
                self._controls.session_failed(channel, error)
        self._count()

    def limit(self, limits: FramingLimits) -> None:
        """Set the limits of framing that were agreed (`MethodReader.limit`)."""
        self._methods.limit(limits)

    def _count(self) -> None:
        if self._methods.held_bytes != self._counted_bytes:
            self._counted_bytes = self._methods.held_bytes
            self._controls.holds(self._counted_bytes)

    def drop(self, channel: int) -> None:
        """Drop what began on the channel of a session that ended."""
        self._methods.drop(channel)
        self._count()
