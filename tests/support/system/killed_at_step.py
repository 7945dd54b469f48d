"""A broker that kills itself at a step of a run: STEP QUEUE NTH, then the arguments of `serve`.

What names QUEUE in the NTH call of a kind makes it ready to die; the step says where it does. Half
of a group is in the log, or half of what is written to a client: a system call cannot be cut from
outside.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from broker_shim.listener_1_0.connections.connection import Connection
from broker_shim.serve.command import main
from broker_shim.sockets.transport import PeerProtocol
from broker_shim.store.local import LocalMessageStore
from sparkstore.exit_codes import end_process
from sparkstore.log.journal import Journal
from sparkstore.log.wal import Wal


class Step(NamedTuple):
    """Where it ends: at which of what a call of new messages, or of a kind, leads to."""

    call: str
    place: str
    way: str = "accept"
    """What its messages leave their queue by; `move` and `reject` do in a transaction."""


STEPS = {
    "a run is received": Step("enqueue_new", "call"),
    "half of a run is in the log": Step("enqueue_new", "half a group"),
    "a run is synced and not answered": Step("enqueue_new", "a group"),
    "half of the answers are out": Step("enqueue_new", "half the output"),
    "a run is about to be committed": Step("enqueue_new", "before the commit"),
    "a run is committed and not marked": Step("enqueue_new", "after the commit"),
    "a run is about to be acquired": Step("acquire", "call"),
    "half of the acquired run is in the log": Step("acquire", "half a group"),
    "a run is acquired and not sent": Step("acquire", "a group"),
    "half of the frames are out": Step("acquire", "half the output"),
    "a range is disposed and not dequeued": Step("dequeue", "call"),
    "half of the dequeued run is in the log": Step("dequeue", "half a group"),
    "a run is dequeued and not told": Step("dequeue", "a group"),
    "half of what is dequeued is told": Step("dequeue", "half the output"),
    "a dequeued run is about to be committed": Step("dequeue", "before the commit"),
    "a dequeued run is committed and not marked": Step("dequeue", "after the commit"),
    "half of the moved run is in the log": Step("dequeue", "half a group", way="move"),
    "a run is moved and not told": Step("dequeue", "a group", way="move"),
    "a moved run is committed and not marked": Step("dequeue", "after the commit", way="move"),
    "half of the rejected run is in the log": Step("dequeue", "half a group", way="reject"),
    "a run is rejected and not told": Step("dequeue", "a group", way="reject"),
}


class Deadly:
    """Counts the calls, and knows what it waits for since."""

    def __init__(self, step: Step, queue: str, nth: int) -> None:
        self._step, self._queue, self._left = step, queue, nth
        self._awaited = self._found = ""

    def arm(self) -> None:
        """Put itself in the way of what the broker does from now on."""
        call, place, _way = self._step
        _before(LocalMessageStore, call if call == "enqueue_new" else "call", self._called)
        if place == "half a group":
            written = os.pwritev
            os.pwritev = lambda *args: self._write(written, *args)
        elif place == "a group":
            _after(Wal, "append", lambda _wal, payload, *_: self._die_if(place, payload))
        elif place.endswith("the commit"):
            around = _before if place.startswith("before") else _after
            around(Journal, "append", lambda _journal, _commit: self._die_if(place))
        elif place == "half the output":
            output = Connection.output
            Connection.output = lambda of: self._half(output(of))  # type: ignore[method-assign]
            _after(PeerProtocol, "_write", lambda _peer: self._found and self._die())

    def _called(self, _store: Any, made: Any, *_others: Any) -> None:
        if getattr(made, "operation", "enqueue_new") != self._step.call:
            return
        if made.queue == self._queue:
            self._left -= 1
            if not self._left:
                self._awaited = self._step.place
                self._die_if("call")

    def _die_if(self, place: str, payload: bytes | None = None) -> None:
        if self._awaited == place and (payload is None or self._queue.encode() in payload):
            self._die()

    def _write(self, written: Any, descriptor: int, buffers: list[bytes], *args: Any) -> int:
        whole = b"".join(buffers[:2])  # without what fills it up
        if self._awaited and self._queue.encode() in whole:
            written(descriptor, [whole[: len(whole) // 2]], *args)
            self._die()
        count: int = written(descriptor, buffers, *args)
        return count

    def _half(self, encoded: bytes) -> bytes:
        # Frames of a run are long, and answers to what came before it are not.
        if not self._awaited or len(encoded) < (1_000 if self._step.call == "acquire" else 1):
            return encoded
        self._found = "found"
        return encoded[: len(encoded) // 2]

    def _die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def _before(owner: type, name: str, act: Callable[..., object]) -> None:
    method = getattr(owner, name)

    def acting(*args: Any, **named: Any) -> Any:
        act(*args)
        return method(*args, **named)

    setattr(owner, name, acting)


def _after(owner: type, name: str, act: Callable[..., object]) -> None:
    method = getattr(owner, name)

    def acting(*args: Any, **named: Any) -> Any:
        result = method(*args, **named)
        act(*args)
        return result

    setattr(owner, name, acting)


if __name__ == "__main__":
    its_step, its_queue, its_nth, *rest = sys.argv[1:]
    Deadly(STEPS[its_step], its_queue, int(its_nth)).arm()
    end_process(main(rest))
