"""The standard handler of what comes in on a session: its controls are invoked, commands go on."""

from __future__ import annotations

from typing import Protocol

from broker_shim.amqp_0_10.controls import Control
from broker_shim.framing.assembly import Assembly
from broker_shim.framing.frames import Frame
from broker_shim.handlers.handler import AssemblyHandler


class SessionControls(Protocol):
    """The session's side of its frames: its own controls, and the numbers of commands."""

    def session_control(self, control: Control) -> None:
        """Handle a control of the session.

        Raises:
            RemoteCommandError: It cannot come now, or says what cannot be.
        """

    def numbered(self, assembly: Assembly) -> bool:
        """Give a command its number; False if the session takes none, and it is dropped."""


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
        self._is_dropping = not self._controls.numbered(assembly)
        if not self._is_dropping:
            self._commands.handle_assembly(assembly)

    def handle_frame(self, frame: Frame) -> None:
        """Forward a frame of a command, unless the command was dropped."""
        if not self._is_dropping:
            self._commands.handle_frame(frame)
