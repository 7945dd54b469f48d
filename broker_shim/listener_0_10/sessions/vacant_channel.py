"""The handler of a channel that has no session."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from broker_shim.amqp_0_10.controls import Control, SessionAttach, SessionDetach, SessionDetached
from broker_shim.amqp_0_10.definitions import SessionDetachCode
from broker_shim.framing.assembly import Assembly
from broker_shim.framing.frames import Frame
from broker_shim.listener_0_10.sessions.session import outgoing_of

if TYPE_CHECKING:
    from broker_shim.listener_0_10.sessions.connection import Amqp010Connection

_log = logging.getLogger(__name__)


class VacantChannel:
    """A channel without a session, on which only session.attach means something."""

    def __init__(self, connection: Amqp010Connection, channel: int) -> None:
        self._connection, self._channel = connection, channel

    def handle_assembly(self, assembly: Assembly) -> None:
        """Attach a session; commands to a session that ended are lost. See `AssemblyHandler`."""
        method = assembly.method
        if isinstance(method, SessionAttach):
            host, channel = self._connection.host, self._channel
            if not host.attach(self._connection, channel, method.name, force=method.force):
                self._say(SessionDetached(method.name, SessionDetachCode.SESSION_BUSY))
        elif assembly.is_control and not isinstance(method, SessionDetached):
            name = method.name if isinstance(method, SessionDetach) else b""
            self._say(SessionDetached(name, SessionDetachCode.NOT_ATTACHED))

    def _say(self, control: Control) -> None:
        """Answer without a session: one for each answer would be a cycle that is left behind."""
        try:
            outgoing_of(self._connection).handle_assembly(Assembly(self._channel, control))
        except Exception:  # noqa: BLE001  # one connection must not end the others
            _log.exception("a handler of what goes out failed on %s", control.NAME)
            self._connection.fault()

    def handle_frame(self, frame: Frame) -> None:
        """Drop a frame of content, which no session takes. See `AssemblyHandler`."""
