"""The first standard handler: methods are put together, and the connection's own are invoked."""

from __future__ import annotations

from typing import Protocol

from broker_shim.amqp_0_10.controls import CONTROLS, Control
from broker_shim.framing.assembly import MethodReader
from broker_shim.framing.errors import RemoteCommandError, RemoteFramingError
from broker_shim.framing.frames import Frame
from broker_shim.framing.order import FramingLimits
from broker_shim.handlers.handler import AssemblyHandler

_CONNECTION = {cls for cls in CONTROLS.values() if cls.NAME.startswith("connection.")}


class ConnectionControls(Protocol):
    """What a connection does: its own controls, and which session is on a channel."""

    def connection_control(self, control: Control) -> None:
        """A control of the connection came.

        Raises:
            RemoteFramingError: It cannot come now.
        """

    def session_on(self, channel: int) -> AssemblyHandler | None:
        """The session's first handler; None: nothing may come on this channel, and is dropped.

        Raises:
            RemoteFramingError: The channel is none that may be used.
        """

    def session_failed(self, channel: int, error: RemoteCommandError) -> None:
        """What came on a channel was no good command: its session has to end."""


class ConnectionIncoming:
    """Connection incoming, a `FrameHandler`: the standard handler there."""

    def __init__(self, controls: ConnectionControls, limits: FramingLimits) -> None:
        self._controls = controls
        self._methods = MethodReader(limits)

    def handle_frame(self, frame: Frame) -> None:
        """See `FrameHandler`."""
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

    def drop(self, channel: int) -> None:
        """A session ended: of what began on its channel nothing more is wanted."""
        self._methods.drop(channel)
