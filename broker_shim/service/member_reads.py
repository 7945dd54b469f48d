"""Reads of one peer, answered in order on a thread of their own, started with the first."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import astuple
from functools import partial
from queue import SimpleQueue
from typing import Any

from broker_shim.errors import InvalidRequest, StoreError, Unavailable
from broker_shim.service import recovery_rows as recovery
from broker_shim.service.decisions.arrivals import check_link
from broker_shim.service.outbox import Outbox
from broker_shim.store import protocol as wire
from broker_shim.store.branch_store import BranchFacts, Xid
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.granted_run import shown
from broker_shim.store.protocol import Body
from sparkstore.core.state_machine.publications import published
from sparkstore.core.xids import xid_bytes, xid_from

_log = logging.getLogger(__name__)

_PIECE_BYTES = 1 << 20
_HEADERS = 1_000
_BRANCHES = 100
_TYPES = {
    wire.FLUSH,
    wire.LOAD,
    wire.RECOVER,
    wire.SIZE,
    wire.ENTRIES,
    wire.HEADERS,
    wire.PART,
    wire.LINK,
    wire.BRANCHES,
    wire.PUBLISHED,
}


class ReadWorker:
    """The thread that answers one peer's reads in order.

    `take` and `end` are for the connection's thread.
    """

    def __init__(self, store: DeltaMessageStore, outbox: Outbox) -> None:
        self.member = ""
        self._store, self._outbox = store, outbox
        self._turns: SimpleQueue[tuple[int, Callable[[], None]] | None] = SimpleQueue()
        self._finding = list[int]()  # reads, as many as wait for branches
        self._thread: threading.Thread | None = None
        self._has_ended = False

    def take(self, kind: int, body: Body) -> None:
        """Answer a read in its turn; it sees every request that came before it.

        Raises:
            InvalidRequest: It is none, or too many wait.
        """
        if kind not in _TYPES or not body or type(body[0]) is not int:
            message = f"a frame of type {kind} is not for a client to send, or has no number"
            raise InvalidRequest(message)
        if kind == wire.FLUSH:
            self._store.flush(partial(self._flushed, body[0]))
            return
        if self._turns.qsize() + len(self._finding) >= wire.MAX_WAITING_READS:
            message = f"more than {wire.MAX_WAITING_READS} reads wait for their answers"
            raise InvalidRequest(message)
        turn = self._find_branches if kind == wire.BRANCHES else partial(self._read, kind)
        self._turns.put((body[0], partial(turn, body)))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="reads", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Stop the thread: no read is answered any more."""
        self._has_ended = True
        self._turns.put(None)

    def _flushed(self, read: int, error: StoreError | None) -> None:
        if error is None:
            self._outbox.say(wire.ANSWER, (read, True))
        else:
            self._outbox.say(wire.FAILED, (read, type(error).__name__, str(error)))

    def _run(self) -> None:
        while (turn := self._turns.get()) is not None:
            read, answer = turn
            try:
                answer()
            except StoreError as error:
                self._fail(read, error)
            except BaseException:  # noqa: BLE001 - else nobody would answer the next one
                _log.exception("a read failed")
                self._fail(read, Unavailable("the service failed on this: see its log"))

    def _fail(self, read: int, error: StoreError) -> None:
        self._outbox.say_slowly(wire.FAILED, (read, type(error).__name__, str(error)))

    def _answer(self, read: int, answers: Iterator[tuple[Any, ...]]) -> None:
        """Send the answers of a read, of which the last is marked."""
        before = next(answers)
        for answer in answers:
            if self._has_ended or not self._outbox.say_slowly(wire.ANSWER, (read, False, *before)):
                return
            before = answer
        self._outbox.say_slowly(wire.ANSWER, (read, True, *before))

    def _read(self, kind: int, body: Body) -> None:
        self._answer(body[0], self._answers(kind, body))

    def _find_branches(self, body: Body) -> None:
        """Answer in a later turn, when branches may be told of: another machine may serve by now.

        Other reads are answered meanwhile. What is shown was so before that turn.
        """
        read, (xid, show) = body[0], _asked_branches(self._store, body)

        def on_found(error: StoreError | None, branches: Sequence[BranchFacts]) -> None:
            def answer() -> None:
                if error is not None:
                    raise error
                self._answer(read, show(branches))

            self._finding.pop()
            self._turns.put((read, answer))

        self._finding.append(read)
        self._store.find_branches(xid, on_found)

    def _answers(self, kind: int, body: Body) -> Iterator[tuple[Any, ...]]:
        if kind in _OF_MESSAGES:
            return _OF_MESSAGES[kind](self._store, body)
        if kind == wire.SIZE:
            return iter([(_size_bytes(self._store),)])
        if kind == wire.RECOVER:
            return recovery.recovered(self._store, self.member)
        has_entries = len(body) < 2 or body[1] is not False
        return recovery.entries(self._store, self.member, has_entries=has_entries)


def _load(store: DeltaMessageStore, body: Body) -> Iterator[tuple[Any, ...]]:
    if len(body) not in {2, 3} or type(body[1]) is not int:
        raise InvalidRequest("LOAD is [read, message_id] or [read, message_id, true]")
    is_anywhere = len(body) == 3 and body[2] is True
    message = (store.load_anywhere if is_anywhere else store.load)(body[1])
    content, header = memoryview(message.body), message.header
    yield header, content[:_PIECE_BYTES]
    for start in range(_PIECE_BYTES, len(content), _PIECE_BYTES):
        yield None, content[start : start + _PIECE_BYTES]


def _part(store: DeltaMessageStore, body: Body) -> Iterator[tuple[Any, ...]]:
    if len(body) != 4 or not _are_ints(body[1:]):
        raise InvalidRequest("PART is [read, message_id, offset, length]")
    message_id, offset, length = body[1:]
    end = offset + length
    yield (store.read(message_id, offset, min(_PIECE_BYTES, length)),)
    for start in range(offset + _PIECE_BYTES, end, _PIECE_BYTES):
        piece = store.read(message_id, start, min(_PIECE_BYTES, end - start))
        if not piece:
            return
        yield (piece,)


def _headers(store: DeltaMessageStore, body: Body) -> Iterator[tuple[Any, ...]]:
    if len(body) != 2 or type(body[1]) is not tuple or not _are_ints(body[1]):
        raise InvalidRequest("HEADERS is [read, [message_id, …]]")
    yield ([],)
    for start in range(0, len(body[1]), _HEADERS):
        yield (store.headers(body[1][start : start + _HEADERS]),)


def _link(store: DeltaMessageStore, body: Body) -> Iterator[tuple[Any, ...]]:
    if len(body) != 2:
        raise InvalidRequest("LINK is [read, link]")
    text = body[1]
    check_link(text)
    with store.look() as machine:
        link = machine.state.links.get(text)
        if link is None:
            return iter([(None, [], [])])
        held = [
            (name, message_id, shown(entry))
            for name, queue in machine.state.queues.items()
            for message_id, entry in queue.entries.marked()
            if entry.acquired_by == text
        ]
        return iter([(recovery.shown_link(link.detail), [*link.unsettled.items()], held)])


def _asked_branches(
    store: DeltaMessageStore, body: Body
) -> tuple[Xid | None, Callable[[Sequence[BranchFacts]], Iterator[tuple[Any, ...]]]]:
    """Return of which branch a read asks, None: of all; and what shows those that were found."""
    if len(body) == 1:
        rows = [(xid_bytes(branch.xid), *astuple(branch)[1:]) for branch in store.prepared()]
        return None, lambda _branches: iter([(rows,)])
    if len(body) != 2 or not isinstance(body[1], bytes | None):
        raise InvalidRequest("BRANCHES is [read] or [read, xid or nil]")
    return None if body[1] is None else xid_from(body[1]), _shown_branches


def _shown_branches(branches: Sequence[BranchFacts]) -> Iterator[tuple[Any, ...]]:
    rows = [
        (xid_bytes(branch.xid), branch.state, [*branch.puts.items()], [*branch.takes.items()])
        for branch in branches
    ]
    parts = range(0, len(rows), _BRANCHES) or (0,)
    return iter([(rows[start : start + _BRANCHES],) for start in parts])


def _are_ints(values: Sequence[object]) -> bool:
    return all(type(value) is int for value in values)


def _published(store: DeltaMessageStore, body: Body) -> Iterator[tuple[Any, ...]]:
    if len(body) != 2 or type(body[1]) is not str:
        raise InvalidRequest("PUBLISHED is [read, name]")
    with store.look() as machine:
        return iter([(published(machine.state, body[1]),)])


_OF_MESSAGES = {
    wire.LOAD: _load,
    wire.HEADERS: _headers,
    wire.PART: _part,
    wire.LINK: _link,
    wire.PUBLISHED: _published,
}


def _size_bytes(store: DeltaMessageStore) -> int:
    """Bytes that the root takes on its disk; what vanishes meanwhile does not count."""
    size = 0
    for folder, _, names in os.walk(store.root.path):
        for name in names:
            with suppress(OSError):
                size += os.lstat(f"{folder}/{name}").st_blocks * 512
    return size
