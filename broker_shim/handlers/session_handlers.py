"""The standard handlers of a session: its controls, its commands, and what goes out on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from broker_shim.amqp_0_10.controls import Control
from broker_shim.framing.assembly import Assembly, TransferRun, frames_of
from broker_shim.framing.frames import MOST_FRAME_BYTES, Frame
from broker_shim.handlers.content import ContentCollector
from broker_shim.handlers.handler import AssemblyHandler


class SessionOutgoing:
    """Session outgoing, an `AssemblyHandler`: the standard handler there.

    Attributes:
        max_frame_bytes: Most bytes of a frame with its header, as was agreed with the peer.
    """

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self.max_frame_bytes = MOST_FRAME_BYTES

    def handle_assembly(self, assembly: Assembly) -> None:
        """Write an assembly in frames of at most `max_frame_bytes`."""
        if isinstance(assembly, TransferRun):
            self._write(assembly.encoded(self.max_frame_bytes))
        else:
            frames = frames_of(assembly, self.max_frame_bytes)
            self._write(b"".join([frame.encoded for frame in frames]))

    def handle_frame(self, frame: Frame) -> None:
        """Write one frame as it is."""
        self._write(frame.encoded)


_SMALL_BYTES = 1 << 12


class Commands(Protocol):
    """The broker's side of commands, as the handler of a session calls it."""

    def invoke(self, assembly: Assembly) -> None:
        """Carry out a command; its header and body are attached, if it has any.

        Raises:
            RemoteCommandError: It cannot be done.
        """

    def holds(self, byte_count: int) -> None:
        """Count the bytes in memory of a command that has not come whole. Raises the same."""


class CommandHandler:
    """Takes commands and frames, puts together what nobody has, and invokes the broker."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._content = ContentCollector(wants_body=True)
        self._counted_bytes = 0

    def interrupted(self) -> bool:
        """Forget a command whose frames were being put together; True if there was one."""
        was_open = self._content.is_open
        self._content.forget()
        self._count(0)
        return was_open

    def handle_assembly(self, assembly: Assembly) -> None:
        """Begin a command, and do it at once if nothing more belongs to it."""
        if self._content.begin(assembly):
            self._commands.invoke(assembly)

    def handle_frame(self, frame: Frame) -> None:
        """Add a frame to the command that is open, and do the command once it is whole."""
        if not self._content.is_open:
            return  # of a command that was refused
        assembly, _ = self._content.add(frame)
        self._count(self._content.held_bytes if assembly is None else 0)
        if assembly is not None:
            self._commands.invoke(assembly)

    def _count(self, held_bytes: int) -> None:
        """Report held bytes; small commands, which are whole at once, are not worth it."""
        if held_bytes > _SMALL_BYTES or self._counted_bytes:
            self._counted_bytes = held_bytes
            self._commands.holds(held_bytes)


class SessionControls(Protocol):
    """The session's side of its frames: its own controls, and the numbers of commands."""

    def session_control(self, control: Control) -> None:
        """Handle a control of the session.

        Raises:
            RemoteCommandError: It cannot come now, or says what cannot be.
        """

    def numbered(self, assembly: Assembly) -> Assembly | None:
        """Give commands their numbers; returns those that are to be done, None: all are dropped."""


class SessionIncoming:
    """Session incoming, an `AssemblyHandler`: the standard handler there."""

    def __init__(self, controls: SessionControls, commands: AssemblyHandler) -> None:
        """Join a session's controls to the handler of its commands.

        Args:
            controls: What session controls are invoked at.
            commands: The handler that commands go on to, with frames of header and body.
        """
        self._controls, self._commands = controls, commands
        self._is_dropping = False

    def handle_assembly(self, assembly: Assembly) -> None:
        """Invoke a control, or number a command and forward it unless the session takes none."""
        if assembly.is_control:
            self._controls.session_control(assembly.method)  # type: ignore[arg-type]
            return
        numbered = self._controls.numbered(assembly)
        self._is_dropping = numbered is None
        if numbered is not None:
            self._commands.handle_assembly(numbered)

    def handle_frame(self, frame: Frame) -> None:
        """Forward a frame of a command, unless the command was dropped."""
        if not self._is_dropping:
            self._commands.handle_frame(frame)
