"""What stands where a channel has no session."""

from __future__ import annotations

from broker_shim.amqp_0_10.controls import SessionAttach, SessionDetach, SessionDetached
from broker_shim.amqp_0_10.definitions import SessionDetachCode
from broker_shim.framing.assembly import Assembly
from broker_shim.framing.frames import Frame
from broker_shim.listener_0_10.sessions.session import Amqp010Session, SessionConnection


class VacantChannel:
    """What stands where a channel has no session: only session.attach means something there."""

    def __init__(self, connection: SessionConnection, channel: int) -> None:
        self._connection, self._channel = connection, channel

    def handle_assembly(self, assembly: Assembly) -> None:
        """See `AssemblyHandler`; commands on their way to a session that ended are lost."""
        method = assembly.method
        if isinstance(method, SessionAttach):
            host, channel = self._connection.host, self._channel
            if not host.attach(self._connection, channel, method.name, force=method.force):
                session = Amqp010Session(self._connection, channel, method.name)
                session.say(SessionDetached(method.name, SessionDetachCode.SESSION_BUSY))
        elif assembly.is_control and not isinstance(method, SessionDetached):
            name = method.name if isinstance(method, SessionDetach) else b""
            session = Amqp010Session(self._connection, self._channel, name)
            session.say(SessionDetached(name, SessionDetachCode.NOT_ATTACHED))

    def handle_frame(self, frame: Frame) -> None:
        """See `AssemblyHandler`."""
