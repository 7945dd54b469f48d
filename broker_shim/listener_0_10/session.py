"""One session of a connection: its controls, the numbers of its commands, and what they hold."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from broker_shim.amqp_0_10.commands import (
    Command,
    ExecutionException,
    ExecutionResult,
)
from broker_shim.amqp_0_10.controls import (
    Control,
    SessionAttach,
    SessionAttached,
    SessionCommandPoint,
    SessionCompleted,
    SessionConfirmed,
    SessionDetach,
    SessionDetached,
    SessionExpected,
    SessionFlush,
    SessionGap,
    SessionKnownCompleted,
    SessionRequestTimeout,
    SessionTimeout,
)
from broker_shim.amqp_0_10.definitions import ExecutionErrorCode, SessionDetachCode
from broker_shim.amqp_0_10.structs import Struct
from broker_shim.broker.virtual_host import Broker
from broker_shim.errors import StoreError
from broker_shim.framing.assembly import Assembly
from broker_shim.framing.errors import RemoteCommandError
from broker_shim.framing.frames import Frame
from broker_shim.framing.segments import BodySegment, HeaderSegment
from broker_shim.framing.sequences import after, distance, is_ordered
from broker_shim.handlers.chain import HandlerContext, InsertionPoints
from broker_shim.handlers.command_handler import CommandHandler
from broker_shim.handlers.session_incoming import SessionIncoming
from broker_shim.handlers.session_outgoing import SessionOutgoing
from broker_shim.listener_0_10.commands import WIRING, CommandTarget, invoke
from broker_shim.listener_0_10.incoming_commands import IncomingCommands
from broker_shim.listener_0_10.refusals import refusal_of
from broker_shim.listener_0_10.sending.subscriptions import Subscriptions
from broker_shim.listener_0_10.transaction import SessionTransaction
from broker_shim.sockets.access import Access
from broker_shim.sockets.login import Login

_log = logging.getLogger(__name__)


class SessionHost(Protocol):
    """All sessions of a broker, by name."""

    def enter(self, session: Amqp010Session, *, force: bool) -> bool:
        """A session is attached; False if its user has one of that name attached already."""

    def leave(self, session: Amqp010Session) -> None:
        """A session ended."""


class SessionConnection(Protocol):
    """The connection that carries a session."""

    broker: Broker
    host: SessionHost
    points: InsertionPoints
    access: Access
    login: Login
    context: HandlerContext
    max_frame_bytes: int
    waiting_bytes: int

    def write(self, encoded: bytes) -> None:
        """Have some bytes written."""

    def attach(self, session: Amqp010Session) -> None:
        """A session has a channel from now on."""

    def detach(self, session: Amqp010Session) -> None:
        """A session has none any more."""

    @property
    def room_bytes(self) -> int:
        """How much more may wait to be written; negative if too much does."""

    def wait_for_room(self, waiter: Any) -> None:
        """Have `has_room` called when less waits to be written."""


class Unattached:
    """What stands where a channel has no session: only session.attach means something there."""

    def __init__(self, connection: SessionConnection, channel: int) -> None:
        self._connection, self._channel = connection, channel

    def handle_assembly(self, assembly: Assembly) -> None:
        """See `AssemblyHandler`; commands on their way to a session that ended are lost."""
        method = assembly.method
        if isinstance(method, SessionAttach):
            session = Amqp010Session(self._connection, self._channel, method.name)
            if self._connection.host.enter(session, force=method.force):
                self._connection.attach(session)
                session.say(SessionAttached(method.name))
            else:
                session.say(SessionDetached(method.name, SessionDetachCode.SESSION_BUSY))
        elif assembly.is_control and not isinstance(method, SessionDetached):
            name = method.name if isinstance(method, SessionDetach) else b""
            session = Amqp010Session(self._connection, self._channel, name)
            session.say(SessionDetached(name, SessionDetachCode.NOT_ATTACHED))

    def handle_frame(self, frame: Frame) -> None:
        """See `AssemblyHandler`."""


class Amqp010Session:
    """One session, while it is attached: it ends with its connection.

    Attributes:
        connection: The connection that carries it.
        channel: Its channel there.
        name: What its client called it.
        incoming: The client's commands, as far as they are complete.
        first: The first handler of what comes in.
        subscriptions: The session's consumers, and what they hold.
        transaction: Since tx.select; None before it.
    """

    def __init__(self, connection: SessionConnection, channel: int, name: bytes) -> None:
        self.connection, self.channel, self.name = connection, channel, name
        self.broker = connection.broker
        self.incoming = IncomingCommands()
        self.is_over = False
        self._standard = SessionOutgoing(connection.write)
        self._standard.max_frame_bytes = connection.max_frame_bytes
        points, context = connection.points, connection.context
        self._outgoing = points.before_output(self._standard, context)
        commands = CommandHandler(self)
        self.first = points.before_session(SessionIncoming(self, commands), context)
        self._next_outgoing = 0
        self._has_begun = False
        self._current = 0
        self._wiring_id: int | None = None
        self._held: deque[Assembly] = deque()
        self._is_going_on = False
        self.subscriptions = Subscriptions(self)
        self.transaction: SessionTransaction | None = None

    @property
    def key(self) -> tuple[str, bytes]:
        """Tells it apart from all others: the names of one user are its own."""
        return self.connection.login.principal.name, self.name

    @property
    def holder(self) -> str:
        """What the store knows by whom its messages are held."""
        user, name = self.key
        return f"amqp-0-10/{user}/{name.hex() if len(name) <= 64 else name[:64].hex()}"

    @property
    def subscription_count(self) -> int:
        """Consumers that it has."""
        return len(self.subscriptions)

    def session_control(self, control: Control) -> None:
        """See `SessionControls`."""
        step = _CONTROLS.get(type(control))
        if step is not None and not self.is_over:
            step(self, control)

    def numbered(self, assembly: Assembly) -> bool:
        """See `SessionControls`."""
        if self.is_over:
            return False
        self._current = assembly.command_id = self.incoming.receive(sync=assembly.sync)
        return True

    def invoke(self, assembly: Assembly) -> None:
        """See `Commands`."""
        if self._wiring_id is None and not self._held:
            self._invoke(assembly)
        else:
            self._held.append(assembly)

    def _invoke(self, assembly: Assembly) -> None:
        """Do a command; what comes after one that changes wiring waits until that is done."""
        assert assembly.command_id is not None
        self._current = assembly.command_id
        self._wiring_id = self._current if type(assembly.method) in WIRING else None
        invoke(self, assembly)

    def _go_on(self) -> None:
        """Do what waited for a change of wiring."""
        if self._is_going_on:
            return
        self._is_going_on = True
        try:
            while self._held and self._wiring_id is None and not self.is_over:
                self._invoke(self._held.popleft())
        except RemoteCommandError as error:
            self.fail(error)
        finally:
            self._is_going_on = False
        self.tell()

    def complete(self, command_id: int) -> None:
        """A command is done, durably; the client is told when it wants to know."""
        if not self.is_over:
            self.incoming.complete(command_id)
            self.tell()
            if command_id == self._wiring_id:
                self._wiring_id = None
                self._go_on()

    def done(self, command_id: int) -> Callable[[StoreError | None], None]:
        """What the store calls when a command is done, or refused."""

        def finished(error: StoreError | None) -> None:
            if error is None:
                self.complete(command_id)
            elif not self.is_over:
                self.fail(refusal_of(error), command_id)

        return finished

    def result(self, command_id: int, value: Struct) -> None:
        """Answer a command, and complete it."""
        if not self.is_over:
            self.command(ExecutionResult(command_id, value))
            self.complete(command_id)

    def say(self, control: Control) -> None:
        """Send a control."""
        self._outgoing.handle_assembly(Assembly(self.channel, control))

    def command(
        self,
        command: Command,
        header: HeaderSegment | None = None,
        body: BodySegment | None = None,
        *,
        sync: bool = False,
    ) -> int:
        """Send a command; its number."""
        if not self._has_begun:
            self._has_begun = True
            self.say(SessionCommandPoint(0, 0))
        command_id = self._next_outgoing
        self._next_outgoing = after(command_id)
        sent = Assembly(self.channel, command, sync, header=header, body=body)
        sent.command_id = command_id
        self._outgoing.handle_assembly(sent)
        return command_id

    def tell(self) -> None:
        """Tell the client what is complete, if it waits for that."""
        if self.incoming.is_due and not self.is_over:
            self._tell()

    def _tell(self) -> None:
        self.say(SessionCompleted(self.incoming.told()))

    def fail(self, error: RemoteCommandError, command_id: int | None = None) -> None:
        """A command cannot be done: say so, and end the session."""
        if self.is_over:
            return
        code = error.method_code
        self.command(
            ExecutionException(
                error.code,
                self._current if command_id is None else command_id,
                code >> 8 or None,
                code & 0xFF or None,
                error.field_index or None,
                error.description.encode()[:1000].decode(errors="ignore"),
            )
        )
        self.end(SessionDetachCode.NORMAL)

    def end(self, code: SessionDetachCode) -> None:
        """End it from our side; what it held is given back."""
        if not self.is_over:
            self.say(SessionDetached(self.name, code))
            self._over(failed=True)

    def part(self) -> None:
        """The client parts in good order: what it held, it gave back."""
        self._over(failed=False)

    def lost(self) -> None:
        """The connection is gone: the client may have seen what it held."""
        self._over(failed=True)

    def _over(self, *, failed: bool) -> None:
        if self.is_over:
            return
        self.is_over = True
        self._held.clear()
        if self.transaction is not None:
            self.transaction.undo()
        self.subscriptions.end(failed=failed)
        self.connection.detach(self)
        self.connection.host.leave(self)

    def _attach(self, control: SessionAttach) -> None:
        """It is attached already: to this channel, which can have no other."""
        self.say(SessionDetached(control.name, SessionDetachCode.TRANSPORT_BUSY))

    def _detach(self, control: SessionDetach) -> None:
        if control.name != self.name:
            self.say(SessionDetached(control.name, SessionDetachCode.NOT_ATTACHED))
            return
        self.part()
        self.say(SessionDetached(control.name, SessionDetachCode.NORMAL))

    def _detached(self, _control: SessionDetached) -> None:
        self.part()

    def _request_timeout(self, _control: SessionRequestTimeout) -> None:
        """No session is kept without its connection: 0, whatever was asked for."""
        self.say(SessionTimeout(0))

    def _command_point(self, control: SessionCommandPoint) -> None:
        if control.command_offset or not self.incoming.start_at(control.command_id):
            self.end(SessionDetachCode.UNKNOWN_IDS)

    def _completed(self, control: SessionCompleted) -> None:
        ranges = control.commands or ()
        if not is_ordered(ranges) or any(
            distance(last, self._next_outgoing) <= 0 for _, last in ranges
        ):
            self.end(SessionDetachCode.UNKNOWN_IDS)
            return
        self.subscriptions.completed(ranges)
        if control.timely_reply:
            self.say(SessionKnownCompleted(ranges))

    def _known_completed(self, control: SessionKnownCompleted) -> None:
        ranges = control.commands or ()
        if is_ordered(ranges):
            self.incoming.known(ranges)
        else:
            self.end(SessionDetachCode.UNKNOWN_IDS)

    def _flush(self, control: SessionFlush) -> None:
        if control.completed:
            self._tell()
        if control.confirmed:
            self.say(SessionConfirmed(self.incoming.told()))
        if control.expected:
            ahead = self.incoming.next_id
            self.say(SessionExpected(((ahead, ahead),)))

    def _gap(self, _control: SessionGap) -> None:
        text = "session.gap: sessions are not resumed"
        self.fail(RemoteCommandError(ExecutionErrorCode.NOT_IMPLEMENTED, text))


_CONTROLS: Mapping[type, Callable[[Amqp010Session, Any], None]] = {
    SessionAttach: Amqp010Session._attach,  # noqa: SLF001  # a table of its own methods
    SessionDetach: Amqp010Session._detach,  # noqa: SLF001
    SessionDetached: Amqp010Session._detached,  # noqa: SLF001
    SessionRequestTimeout: Amqp010Session._request_timeout,  # noqa: SLF001
    SessionCommandPoint: Amqp010Session._command_point,  # noqa: SLF001
    SessionCompleted: Amqp010Session._completed,  # noqa: SLF001
    SessionKnownCompleted: Amqp010Session._known_completed,  # noqa: SLF001
    SessionFlush: Amqp010Session._flush,  # noqa: SLF001
    SessionGap: Amqp010Session._gap,  # noqa: SLF001
}
_TARGET: type[CommandTarget] = Amqp010Session
