"""The one loop: asyncio's, with calls from other threads, and an end to each turn.

A turn is what happens between two sleeps: bytes came, answers of the store, calls that were put
off. What all of them led to is done once, at its end: a hundred completions become one dispatch and
one write to each peer.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from functools import partial

from broker_shim.broker.storage.inbox import Inbox

_log = logging.getLogger(__name__)

Call = Callable[[], None]

_NEVER = float("inf")

Later = Callable[[float, Call], None]
"""later(delay_s, call): make a call on the loop's thread after a while."""


def wall_us() -> int:
    """Tell the time of the wall's clock, UTC µs."""
    return time.time_ns() // 1000


class SoonestTimer:
    """One timer for many times, by whatever clock: a call is made when the soonest has come.

    Who is called asks again for what is not due yet. A timer that was set before a sooner one does
    nothing when its time comes.
    """

    def __init__(self, later: Later, call: Call) -> None:
        """Begin without a time; on the loop's thread only, as all that follows."""
        self._later, self._call = later, call
        self._at = _NEVER

    def ask(self, at: float, delay_s: float) -> None:
        """Have the call made at a time, which comes after a delay, unless it is made before."""
        if at < self._at:
            self._at = at
            self._later(delay_s, partial(self._ring, at))

    def _ring(self, at: float) -> None:
        if at == self._at:
            self._at = _NEVER
            self._call()


class Loop:
    """Calls back what is ready, then what ends a turn.

    `post` and `stop` may be called on other threads; the rest on the loop's.

    Why the end of a turn is never missed: everything that runs on the loop gets there by `later`,
    `on_readable`, the inbox, or a transport whose protocol calls `wake`. Each asks
    for the end of the turn after it ran. The request stands from before the end runs until it
    begins, so what is asked for while it runs is done in the next turn.

    Attributes:
        asyncio: The event loop under it, for transports.
        inbox: Brings calls of other threads onto it.
    """

    def __init__(self, inbox: Inbox) -> None:
        self.asyncio = asyncio.new_event_loop()
        self.inbox = inbox
        self._at_end: list[Call] = []
        self._is_end_due = False
        self.asyncio.add_reader(inbox, self._drain)

    def at_end_of_turn(self, call: Call) -> None:
        """Have this called at the end of each turn, in the order of these calls."""
        self._at_end.append(call)

    def wake(self) -> None:
        """Have this turn end with the calls of its end, as something happened."""
        if not self._is_end_due:
            self._is_end_due = True
            self.asyncio.call_soon(self._end_turn)

    def is_in_turn(self) -> bool:
        """Tell whether the loop runs, and on this thread: the end of a turn will come."""
        try:
            return asyncio.get_running_loop() is self.asyncio
        except RuntimeError:
            return False

    def post(self, call: Call) -> None:
        """Make a call on the loop's thread, asked for on any other."""
        self.inbox.post(lambda _nothing: call(), None)

    def later(self, delay_s: float, call: Call) -> None:
        """Make a call after a while; 0 is the next turn."""
        if delay_s > 0:
            self.asyncio.call_later(delay_s, self._make, call)
        else:
            self.asyncio.call_soon(self._make, call)

    def on_readable(self, watched: socket.socket, call: Call) -> None:
        """Call whenever a socket can be read or accepted from, until `forget`."""
        self.asyncio.add_reader(watched, self._make, call)

    def forget(self, watched: socket.socket) -> None:
        """Watch a socket no longer; call it before the socket is closed."""
        self.asyncio.remove_reader(watched)

    def run(self) -> None:
        """Run until `stop`, which may have been called before."""
        self.asyncio.run_forever()

    def stop(self) -> None:
        """Have `run` return soon; safe from any thread, and when it has returned."""
        self.post(self.asyncio.stop)

    def close(self) -> None:
        """Let go of everything but the inbox; what was put off is never called."""
        self.asyncio.remove_reader(self.inbox)
        # What transports put off to their end, after which their sockets are closed.
        self.asyncio.run_until_complete(asyncio.sleep(0))
        self.asyncio.close()

    def _drain(self) -> None:
        self.inbox.drain()
        self.wake()

    def _make(self, call: Call) -> None:
        try:
            call()
        except Exception:  # noqa: BLE001  # one call must not lose the others, or the loop
            _log.exception("a call of the loop failed")
        self.wake()

    def _end_turn(self) -> None:
        self._is_end_due = False
        for call in self._at_end:
            call()
