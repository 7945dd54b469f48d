"""Define handlers of frames, and handlers that take assemblies, too."""

from __future__ import annotations

from typing import Protocol

from broker_shim.framing.assembly import Assembly
from broker_shim.framing.frames import Frame


class FrameHandler(Protocol):
    """A handler that takes frames as they come."""

    def handle_frame(self, frame: Frame) -> None:
        """Take the next frame of the connection.

        Raises:
            RemoteFramingError: The peer's connection has to end.
            RemoteCommandError: The peer's session has to end.
        """


class AssemblyHandler(FrameHandler, Protocol):
    """Takes controls and commands, and those frames of header and body that nobody put together."""

    def handle_assembly(self, assembly: Assembly) -> None:
        """Take the next control or command; frames follow, unless it `is_whole`.

        Raises the same.
        """


class FrameAddOn:
    """A handler that stands before another one: alone it only forwards.

    Attributes:
        then: The handler that comes after it.
    """

    def __init__(self, then: FrameHandler) -> None:
        self.then = then

    def handle_frame(self, frame: Frame) -> None:
        """Forward the frame unchanged to the next handler."""
        self.then.handle_frame(frame)


class AssemblyAddOn:
    """A handler that stands before one that takes assemblies: alone it only forwards.

    Attributes:
        then: The handler that comes after it.
    """

    def __init__(self, then: AssemblyHandler) -> None:
        self.then = then

    def handle_frame(self, frame: Frame) -> None:
        """Forward the frame unchanged to the next handler."""
        self.then.handle_frame(frame)

    def handle_assembly(self, assembly: Assembly) -> None:
        """Forward the assembly unchanged to the next handler."""
        self.then.handle_assembly(assembly)
