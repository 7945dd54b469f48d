"""A socket and the connection it carries: bytes ↔ the protocol, on asyncio's transports."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import cast

from broker_shim.broker.storage.loop import Loop
from broker_shim.sockets.served_connection import ServedConnection
from broker_shim.sockets.shared_port import UndecidedConnection
from broker_shim.sockets.transport_end import let_go
from broker_shim.sockets.turns import LoopTime, Turns

_log = logging.getLogger(__name__)

_FAREWELL_S = 2.0
"""For a peer that is told that it is over, to take that and to hang up."""


Connect = Callable[[Callable[[], None], asyncio.Transport], ServedConnection]
"""connect(has_output, transport): the connection of a peer that came in."""


class _Output:
    """Tells the loop that a peer has output; once its socket is gone, nobody.

    A connection has this, and not its peer, and outlives the socket while the store owes it
    answers: so the two are no cycle when it is over.
    """

    __slots__ = ("_tell",)

    def __init__(self) -> None:
        self._tell: Callable[[], None] | None = None

    def __call__(self) -> None:
        if self._tell is not None:
            self._tell()

    def begin(self, tell: Callable[[], None]) -> None:
        """Begin to report output on a connected socket."""
        self._tell = tell

    def end(self) -> None:
        """Report no more output, as the socket is gone."""
        self._tell = None


class PeerProtocol(asyncio.BufferedProtocol):
    """Carry a connection's bytes between its socket and the broker's loop.

    Room to write. Deliveries stop when a connection's `buffered_bytes` wait; who is held up by that
    waits at the connection until it hears of room. It hears whenever something was written
    (`unsent`), and once more when a full socket has taken nearly all (`resume_writing`). Either
    what filled the room was handed to the transport since, or the transport has it and empties.
    Answers are not held up, so while too many of them wait no more is read. A peer that asks and
    does not read has us gather no more than that.

    Turns. What came is acted on as far as the peer's turn goes; the rest waits for its next turn,
    after all others had theirs, and nothing is read meanwhile.

    The end. Whoever hangs up leaves nothing behind that only Python's collector finds: it comes
    seldom (`sparkstore.log.tuning`), and who only comes and goes would fill the memory.
    """

    def __init__(
        self,
        loop: Loop,
        connect: Connect,
        buffer: memoryview,
        turns: Turns,
        *,
        on_begin: Callable[[PeerProtocol], None],
        on_output: Callable[[PeerProtocol], None],
        on_end: Callable[[PeerProtocol], None],
    ) -> None:
        """Prepare for a socket; the connection is made when the transport is.

        Args:
            loop: The loop that the transport is on.
            connect: Makes the connection, given what to call when it has output, and the
                transport; not before TLS has told who the peer is.
            buffer: Where bytes are read to; free for others when `buffer_updated` returns.
            turns: The turns of all peers.
            on_begin: Called once, when it is connected.
            on_output: Have `write` called at the end of this turn.
            on_end: Called once, when the socket is gone.
        """
        self._loop, self._buffer, self._turns = loop, buffer, turns
        self._on_begin, self._on_end = on_begin, on_end
        self._connect: Connect | None = connect
        self._on_output, self._output = on_output, _Output()
        self.connection: ServedConnection
        self._buffered_bytes = 0
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle | None = None
        self._farewell: asyncio.TimerHandle | None = None
        self._is_begun = False
        self._is_leaving = self._is_left = False
        self._is_open = False
        self._is_reading = True
        self._is_busy = False
        self._is_turn_due = False
        self._taken = LoopTime()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Make the connection on the new transport, after TLS if there is any."""
        self._transport = cast("asyncio.Transport", transport)
        connect, self._connect = self._connect, None
        assert connect is not None, "a transport is made once"
        self._output.begin(partial(self._on_output, self))
        try:
            self._is_decided(connect(self._output, self._transport))
        except Exception:  # noqa: BLE001  # one connection must not end the others
            _log.exception("a connection could not be served")
            self._transport.abort()
            return
        self._is_begun = True
        self._buffered_bytes = self.connection.broker.settings.buffered_bytes
        high_bytes = self._buffered_bytes // 4
        self._transport.set_write_buffer_limits(high_bytes, high_bytes // 4)
        self._on_begin(self)
        self._tick()

    def _is_decided(self, connection: ServedConnection) -> None:
        """Serve this connection from now on."""
        self.connection = connection
        if isinstance(connection, UndecidedConnection):
            connection.on_decided = self._is_decided

    def get_buffer(self, _size_hint: int) -> memoryview:
        """Return the buffer to read to; the bytes are copied before anybody else reads."""
        return self._buffer

    def buffer_updated(self, byte_count: int) -> None:
        """Give the connection the bytes that came, as one turn."""
        if self._is_left:
            return
        received = bytes(self._buffer[:byte_count])
        self._turn(lambda: self.connection.receive(received, self._turns.work), byte_count)

    def _go_on(self) -> None:
        """Take the next turn for input that the one before was too short for."""
        self._is_turn_due = False
        if self._is_left or self._is_gathering or self._transport.is_closing():
            self._be_busy(is_busy=False)
            return
        self._turn(lambda: self.connection.go_on(self._turns.work))

    def _turn(self, act: Callable[[], None], byte_count: int = 0) -> None:
        """Give this peer a turn; `byte_count` is what it said for it."""
        began_s = time.monotonic()
        self._contain(act)
        if self.connection.is_open and not self._is_open:
            self._is_open = True
            self._tick()  # the peer has said how often it wants to hear of us
        if self.connection.has_more and not self._is_turn_due:
            self._is_turn_due = True
            self._loop.later(self.connection.wait_s, self._go_on)
        self._be_busy(is_busy=self._is_turn_due)
        self._read_or_wait()
        self._loop.wake()
        self._turns.ended(self._taken, began_s, 0 if self._is_busy else byte_count)

    @property
    def _is_gathering(self) -> bool:
        """True while more waits to be written than should."""
        return self._transport.get_write_buffer_size() > 2 * self._buffered_bytes

    def _be_busy(self, *, is_busy: bool) -> None:
        if is_busy is not self._is_busy:
            self._is_busy = is_busy
            self._turns.count(1 if is_busy else -1)

    def _read_or_wait(self) -> None:
        """Read on, unless there is enough to do already."""
        if self._transport.is_closing():
            return
        may_read = not (self.connection.has_more or self._is_gathering)
        if may_read is not self._is_reading:
            self._is_reading = may_read
            if may_read:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def eof_received(self) -> None:
        """Tell the connection that its peer sends no more, so that it can settle nothing more."""
        self._contain(lambda: self.connection.receive(b""))
        self.write()

    def resume_writing(self) -> None:
        """Tell the connection of room, as nearly all of what waited was taken."""
        self._turn(lambda: self.connection.unsent(self._transport.get_write_buffer_size()))

    def connection_lost(self, _reason: Exception | None) -> None:
        """End the connection, as the socket is gone."""
        let_go(self._transport)
        if not self._is_begun:
            self._output.end()
            return
        for timer in filter(None, (self._timer, self._farewell)):
            timer.cancel()
        self._timer = self._farewell = None
        self._be_busy(is_busy=False)
        self._turns.gone(self._taken)
        # `lost` gives back what the peer held; after `let_go` nothing may be asked any more.
        self._contain(self.connection.lost)
        self._on_end(self)
        self._output.end()
        self._contain(self.connection.let_go)
        self._loop.wake()

    def write(self) -> None:
        """Hand what waits to the transport; hang up if that was all there will ever be."""
        if self._is_left:
            return
        self._contain(self._write)
        if self._transport.is_closing():
            return
        if self.connection.is_closed and not self._is_leaving:
            self._is_leaving = True
            self._farewell = self._loop.asyncio.call_later(_FAREWELL_S, self._transport.abort)
        if self.connection.is_over:
            self._transport.close()  # once it has written all

    def say_goodbye(self, reason: str) -> None:
        """Tell the peer that this is the end; it hangs up, or is hung up on."""
        self._contain(lambda: self.connection.close_forced(reason))

    def leave(self) -> None:
        """End as if this machine were gone: the peer looks for another one, and goes on there.

        All that waits is written before. What the peer sends is dropped, but read: a socket that is
        closed with unread bytes is reset, and takes from the peer what was written last.

        Decision: no close frame. Proton's reactor reads no more after one with
        `amqp:connection:forced`, so it does not see that the socket ends, and connects again after
        its idle time, if it has one. At the mere end of a socket each client with several addresses
        takes the next one.
        """
        self.write()
        self._contain(self.connection.lost)
        if not self._transport.is_closing():
            self._is_left = True
            self._transport.write_eof()

    def close(self) -> None:
        """Hang up at once."""
        self._transport.abort()

    def _write(self) -> None:
        encoded = self.connection.output()
        if encoded:
            self._transport.write(encoded)
            self._taken.sent(len(encoded))
        self.connection.unsent(self._transport.get_write_buffer_size())

    def _tick(self) -> None:
        """Do what is due by the clock, and come again when the connection wants it."""
        if self._timer is not None:
            self._timer.cancel()
        now_s = time.monotonic()
        next_s = now_s + _FAREWELL_S
        try:
            next_s = self.connection.tick(now_s)
        except Exception:  # noqa: BLE001  # one connection must not end the others
            self._failed()
        self._timer = self._loop.asyncio.call_later(max(0.0, next_s - now_s), self._tick)
        self._loop.wake()

    def _contain(self, step: Callable[[], None]) -> None:
        """Make one step of the connection: a fault in it ends this connection and no other.

        What ends the store is not raised here: it ends the loop (see `StoreCalls`).
        """
        try:
            step()
        except Exception:  # noqa: BLE001  # one connection must not end the others
            self._failed()

    def _failed(self) -> None:
        _log.exception("connection %d failed and is ended", self.connection.number)
        self._transport.abort()
