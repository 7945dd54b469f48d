"""One session of a connection: its controls, the numbers of its commands, and what they hold."""

from __future__ import annotations

import hashlib
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker_shim.amqp_0_10.commands import (
    Command,
    ExecutionException,
    ExecutionResult,
)
from broker_shim.amqp_0_10.controls import (
    Control,
    SessionAttached,
    SessionCommandPoint,
    SessionCompleted,
    SessionDetached,
)
from broker_shim.amqp_0_10.definitions import ExecutionErrorCode, SessionDetachCode
from broker_shim.amqp_0_10.structs import Struct
from broker_shim.errors import StoreError
from broker_shim.framing.assembly import Assembly
from broker_shim.framing.errors import RemoteCommandError
from broker_shim.framing.sequences import after
from broker_shim.handlers.handler import AssemblyHandler
from broker_shim.handlers.session_handlers import CommandHandler, SessionIncoming, SessionOutgoing
from broker_shim.listener_0_10.connection_output import RoomWaiter
from broker_shim.listener_0_10.refusals import refusal_of
from broker_shim.listener_0_10.sessions import controls
from broker_shim.listener_0_10.sessions.incoming_commands import WIRING, IncomingCommands
from broker_shim.listener_0_10.sessions.outgoing_commands import OutgoingCommands
from broker_shim.listener_0_10.sessions.session_publisher import SessionPublisher
from broker_shim.listener_0_10.sessions.subscriptions import Subscriptions
from broker_shim.listener_0_10.transaction import SessionTransaction

if TYPE_CHECKING:
    from broker_shim.listener_0_10.sessions.connection import Amqp010Connection

_log = logging.getLogger(__name__)


class Amqp010Session:
    """One session: it ends with its connection, or so long after that as its client asked.

    Attributes:
        connection: The connection that carries it, or did.
        channel: Its channel there.
        name: What its client called it.
        incoming: The client's commands, as far as they are complete.
        outgoing: Those to the client.
        first: The first handler of what comes in.
        publisher: What the client sends.
        subscriptions: The session's consumers, and what they hold.
        transaction: Since tx.select, or while it works in a branch; None at other times.
        is_distributed: It has asked for dtx.
        is_over: True once it ended.
        is_attached: A connection carries it.
        current: The number of the command that is being done.
        detached_count: How often it was detached.
        is_behind: It was resumed, and its client has not said yet what it has.
        timeout_s: How long it outlives a connection, in seconds.
    """

    def __init__(self, connection: Amqp010Connection, channel: int, name: bytes) -> None:
        self.name = name
        self.broker = connection.broker
        self.incoming, self.outgoing = IncomingCommands(), OutgoingCommands()
        self.is_over, self.is_attached = False, True
        self.detached_count, self.timeout_s = 0, 0
        self._begin_on(connection, channel)
        self.is_behind = False
        self.current = 0
        self._wiring_id: int | None = None
        self._held: deque[Assembly] = deque()
        self._is_going_on = False
        self.publisher, self.subscriptions = SessionPublisher(self), Subscriptions(self)
        self.transaction: SessionTransaction | None = None
        self.is_distributed = False

    def _begin_on(self, connection: Amqp010Connection, channel: int) -> None:
        self.connection, self.channel = connection, channel
        points, context = connection.points, connection.context
        self._outgoing = outgoing_of(connection)
        self._commands = CommandHandler(self)
        self.first = points.before_session(SessionIncoming(self, self._commands), context)
        self._announced: int | None = None

    def begin(self) -> None:
        """Tell the peer that the session is attached."""
        self.connection.attach(self)
        self.say(SessionAttached(self.name))

    def resume(self, connection: Amqp010Connection, channel: int) -> None:
        """Resume the session of a client that is back, and ask what it has of it."""
        self._begin_on(connection, channel)
        self.is_attached = self.is_behind = True
        connection.waiting_bytes += self._held_bytes
        self.begin()
        controls.say_expected(self)
        self.tell_all()

    @property
    def key(self) -> tuple[str, bytes]:
        """The name that tells it apart: those of one user are the user's own."""
        return session_key(self.connection, self.name)

    @property
    def connection_number(self) -> int:
        """The number of the connection that it is on, or was."""
        return self.connection.number

    @property
    def holder(self) -> str:
        """The name by which the store knows the holder of the session's messages."""
        user, name = self.key
        return f"amqp-0-10/{user}/{_shown(name)}"

    def session_control(self, control: Control) -> None:
        """Do a control, unless the session is over. See `SessionControls`."""
        if not self.is_over:
            controls.invoke(self, control)

    def numbered(self, assembly: Assembly) -> Assembly | None:
        """Number the next commands, but for those that came before. See `SessionControls`."""
        if self.is_over:
            return None
        seen = self.incoming.seen(len(assembly), sync=assembly.sync)
        if seen == len(assembly):
            return None
        if seen:
            assembly = assembly.cut(seen)
        self.current = assembly.command_id = self.incoming.receive(
            len(assembly), sync=assembly.sync
        )
        return assembly

    def invoke(self, assembly: Assembly) -> None:
        """Do a command, or keep it until the one before is complete. See `Commands`."""
        if self._wiring_id is None and not self._held:
            self._invoke(assembly)
        else:
            self._held.append(assembly)
            self.connection.waiting_bytes += _bytes_of(assembly)

    @property
    def _held_bytes(self) -> int:
        return sum(map(_bytes_of, self._held))

    def holds(self, byte_count: int) -> None:
        """Count the bytes of messages that the client began and has not ended. See `Commands`."""
        self.broker.unfinished.limit(self.connection, self, byte_count)

    def give_up_unfinished(self, reason: str) -> None:
        """End the session, as too much waits that has not come whole."""
        code = ExecutionErrorCode.RESOURCE_LIMIT_EXCEEDED
        self.fail(RemoteCommandError(code, f"messages {reason}"))

    def _invoke(self, assembly: Assembly) -> None:
        """Do a command; what comes after one that changes wiring waits until that is done."""
        assert assembly.command_id is not None
        self.current = assembly.command_id
        self._wiring_id = self.current if type(assembly.method) in WIRING else None
        self.connection.host.invoke(self, assembly)

    def wait_for(self, command_id: int) -> None:
        """Do the commands after this one only when it is complete."""
        self._wiring_id = command_id

    def _go_on(self) -> None:
        """Do what waited for a change of wiring, or an answer."""
        if self._is_going_on:
            return
        self._is_going_on = True
        try:
            while self._held and self._wiring_id is None and not self.is_over:
                assembly = self._held.popleft()
                if self.is_attached:
                    self.connection.waiting_bytes -= _bytes_of(assembly)
                self._invoke(assembly)
        except RemoteCommandError as error:
            self.fail(error)
        finally:
            self._is_going_on = False
        if not self.is_over:
            self.publisher.hand_over()
            self.tell()

    def complete(self, *command_ids: int) -> None:
        """Complete commands that are done durably, and tell the client when it wants to know."""
        if not self.is_over:
            self.incoming.complete(command_ids)
            self.tell()
            if self._wiring_id in command_ids:
                self._wiring_id = None
                self._go_on()

    def done(self, command_id: int) -> Callable[[StoreError | None], None]:
        """Make the completion that completes a command, or fails the session."""

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
        """Send a control to the peer, if the session is attached."""
        if self.is_attached:
            self._hand_out(Assembly(self.channel, control))

    def command(self, command: Command) -> None:
        """Send a command that has no content."""
        self.transmit(Assembly(self.channel, command))

    def transmit(self, commands: Assembly) -> int:
        """Number commands and send them, now or when the client is back; the first number."""
        command_id = self.outgoing.number(commands)
        if self.is_attached and not self.is_behind:
            self.send(commands)
        return command_id

    def send(self, commands: Assembly) -> None:
        """Send commands that have their numbers, now or again."""
        assert commands.command_id is not None
        if commands.command_id != self._announced:
            self.say(SessionCommandPoint(commands.command_id, 0))
        self._announced = after(commands.command_id, len(commands))
        commands.channel = self.channel
        for part in commands.singles() if self.connection.points.session_outgoing else (commands,):
            self._hand_out(part)

    def _hand_out(self, assembly: Assembly) -> None:
        """Send a command; an add-on that fails does not fail whoever had it sent."""
        try:
            self._outgoing.handle_assembly(assembly)
        except Exception:  # noqa: BLE001  # one connection must not end the others
            _log.exception("a handler of what goes out failed on %s", assembly.method.NAME)
            self.connection.fault()

    @property
    def may_send(self) -> bool:
        """False while nothing more should be sent: it would wait here."""
        is_there = self.is_attached and not self.is_behind
        return is_there and self.connection.room_bytes >= 0 and self.outgoing.has_room

    def wait_to_send(self, waiter: RoomWaiter) -> None:
        """Have `has_room` called when more may be sent."""
        if self.is_attached and self.connection.room_bytes < 0:
            self.connection.wait_for_room(waiter)

    def tell(self) -> None:
        """Tell the client what is complete, if it waits for that."""
        if self.incoming.is_due and self.is_attached and not self.is_over:
            self.tell_all()

    def tell_all(self) -> None:
        """Tell the client what is complete."""
        self.say(SessionCompleted(self.incoming.newly_complete()))

    def fail(self, error: RemoteCommandError, command_id: int | None = None) -> None:
        """End the session with the reason why a command cannot be done."""
        if self.is_over:
            return
        code = error.method_code
        self.command(
            ExecutionException(
                error.code,
                self.current if command_id is None else command_id,
                code >> 8 or None,
                code & 0xFF or None,
                error.field_index or None,
                error.description.encode()[:1000].decode(errors="ignore"),
            )
        )
        self.end(SessionDetachCode.NORMAL)

    def end(self, code: SessionDetachCode) -> None:
        """End the session from our side; what it held is given back."""
        if not self.is_over:
            self.say(SessionDetached(self.name, code))
            self._over(is_lost=False)

    def part(self) -> None:
        """The client parts in good order."""
        self._leave(is_lost=False)

    def lost(self) -> None:
        """Leave the connection, which is gone, and perhaps the client with it."""
        self._leave(is_lost=True)

    def displaced(self) -> None:
        """Leave the connection, as the client attaches the session elsewhere."""
        self.say(SessionDetached(self.name, SessionDetachCode.SESSION_BUSY))
        self._leave(is_lost=True)

    def expired(self) -> None:
        """End the session, as its client did not come back in time."""
        _log.info("a session of AMQP 0-10 ended: nobody resumed it in %d s", self.timeout_s)
        self._over(is_lost=True)

    def _leave(self, *, is_lost: bool) -> None:
        """Leave the connection; the client may come back to the session."""
        if self.is_over or not self.is_attached:
            return
        self.publisher.hand_over()
        if not self.timeout_s or not self.connection.host.keeps(self):
            self._over(is_lost=is_lost)
            return
        self.is_attached = False
        self.connection.waiting_bytes -= self._held_bytes
        self.detached_count += 1
        if self._commands.interrupted():
            self.incoming.withdraw()
        self.connection.detach(self)

    def _over(self, *, is_lost: bool) -> None:
        if self.is_over:
            return
        self.publisher.hand_over()
        self.is_over = True
        self._commands.interrupted()
        if self.is_attached:
            self.connection.waiting_bytes -= self._held_bytes
        self._held.clear()
        # Before the subscriptions: what it accepted is theirs again, and is given back with the
        # rest.
        if self.transaction is not None:
            self.transaction.undo()
        self.subscriptions.end()
        self.connection.detach(self)
        self.connection.host.leave(self, is_lost=is_lost)
        # They hold the session, and answers of the store that are due may hold them: no cycle.
        del self.first, self._commands, self.publisher, self.subscriptions


def session_key(connection: Amqp010Connection, name: bytes) -> tuple[str, bytes]:
    """Make the key that tells a session apart from all others: its user and its name."""
    return connection.login.principal.name, name


def outgoing_of(connection: Amqp010Connection) -> AssemblyHandler:
    """The first handler of what goes out on a channel of a connection."""
    standard = SessionOutgoing(connection.write)
    standard.max_frame_bytes = connection.max_frame_bytes
    return connection.points.before_output(standard, connection.context)


def _shown(name: bytes) -> str:
    """A name of its own for each name, and not much longer: one may have 65,535 bytes."""
    if len(name) <= _LONG_NAME_BYTES:
        return name.hex()
    return f"{name[:32].hex()}.{hashlib.sha256(name).hexdigest()}"


def _bytes_of(assembly: Assembly) -> int:
    return _COMMAND_BYTES * len(assembly) + assembly.content_bytes


_LONG_NAME_BYTES = 64
_COMMAND_BYTES = 1_000
"""What a command costs that waits, but for its header and body."""
