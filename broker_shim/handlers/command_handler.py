"""The last handler of what comes in: commands are invoked when all of them is there."""

from __future__ import annotations

from typing import Protocol

from broker_shim.framing.assembly import Assembly
from broker_shim.framing.frames import Frame
from broker_shim.handlers.content import ContentCollector

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
