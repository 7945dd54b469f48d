"""Takes tickets of messages for one query at a store service, and settles them.

It is a member of the service whose name and incarnation are the query's, so what an earlier process
of the query has taken is still its own. On each connection it says which messages it holds; what
the service has acquired for it and could not tell it waits again (`members.grants`). A query takes
one ticket at a time, so what is under way is never more than that.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from broker_shim.completion import Completion
from broker_shim.errors import InvalidRequest, NotAcquired, StoreError, Unavailable
from broker_shim.service.dispatcher import USAGE
from broker_shim.spark_sink.sink_settings import service_address
from broker_shim.spark_sink.task_store import service_token
from broker_shim.spark_tickets.ticket_settings import TicketSettings
from broker_shim.store import protocol as wire
from broker_shim.store.granted_run import runs_of
from broker_shim.store.interface import MessageHeader, StoredMessage
from broker_shim.store.protocol import SeenRoot
from broker_shim.store.remote.greeting import MemberIdentity
from broker_shim.store.remote.pending_requests import Answer
from broker_shim.store.remote.remote_store import RemoteMessageStore
from sparkstore.core.queue_names import shown

_OTHER = re.compile(r"spark-[0-9a-f]+/ticket-")
"""Begins the name of another query that holds a ticket."""
_HOLDER = "ticket-"
"""With this begins the name of who holds a ticket; its number follows."""
_STEP_RECORDS = 1_000
"""Messages that are asked for at a time where bytes are limited."""
_AHEAD_RECORDS = 4_000
"""Messages that are asked for at a time elsewhere, and so many more before they are all here: of
more at once the service reads only a part ahead, and tasks would ask for the others one by one."""
_MOST_ALONG_BYTES = 32 << 20
"""Content that goes to the tasks of a ticket with their partitions."""
_LOOK_S = 1.0
_SILENT = json.dumps({"error": "InvalidRequest", "message": "a query of Spark has no connections"})


def member_of(query: str) -> str:
    """Name the member that a query is, and the stream of what its tasks have read."""
    return f"spark-{query}"


@dataclass(frozen=True, slots=True)
class TicketMessage:
    """A message of a ticket.

    Attributes:
        message_id: The id by which it is dequeued.
        delivery_count: How often a delivery of it has failed.
        message_bytes: Of its header and body.
        is_kept: A restart of the store keeps it.
        message: Its header and content, if they came along when it was taken; tasks load others.
    """

    message_id: int
    delivery_count: int
    message_bytes: int
    is_kept: bool
    message: StoredMessage | None = None


@dataclass(slots=True)
class _Taking:
    """A ticket that is being taken."""

    number: int
    ticket: int
    limit: int
    most: int
    ahead: int
    caught_up_at: int = -1
    ended: StoreError | None = None
    is_over: bool = False
    along_bytes: int = 0
    came: list[TicketMessage] = field(default_factory=list)

    @property
    def is_step_whole(self) -> bool:
        """True if as much is here as was asked for, but for what is asked for ahead."""
        ahead = 0 if self.limit == self.most else self.ahead
        return len(self.came) >= self.limit - ahead

    def along(self, message_id: int, size: int, content: list[Any]) -> StoredMessage | None:
        """Keep header and content that came along, up to `_MOST_ALONG_BYTES` of a ticket."""
        header, body = content
        if header is None or body is None or self.along_bytes + size > _MOST_ALONG_BYTES:
            return None
        self.along_bytes += size
        return StoredMessage(message_id, MessageHeader(*header), body)


class TicketStore:
    """The tickets of one query. One thread calls it; the connection's thread tells it.

    Attributes:
        root_id: Identity of the root that the service serves.
        held: By ticket and message id, what this query has taken and not settled.
        others: What other queries held of the queue when this connected: messages by holder.
    """

    def __init__(self, settings: TicketSettings, query: str, root_id: str | None = None) -> None:
        """Connect, and find out what the query holds.

        Args:
            settings: The options of the query.
            query: Stands for the query: hexadecimal digits, the same after its restarts.
            root_id: The root of its checkpoint, if it has one.

        Raises:
            Fenced: The service has another root, which is no promoted copy of that one.
            StoreError: No service answers, or it sends this member away; there is no such queue.
        """
        self._settings, self._name = settings, member_of(query)
        token, lease_s = service_token(settings), settings.lease_s
        identity = MemberIdentity(self._name, query, token=token, lease_s=lease_s)
        address = service_address(settings.path, settings.socket)
        # The service compares roots; how much of it was seen the numbers of tickets say.
        seen = None if root_id is None else SeenRoot(root_id, 0, "", 0)
        self._store = RemoteMessageStore(address, identity, retry_s=settings.wait_s, seen=seen)
        self._changed = threading.Condition()
        self._taking: _Taking | None = None
        self._numbers = 0
        self.root_id = self._store.root_id
        self.held: dict[int, dict[int, TicketMessage]] = {}
        self.others: Counter[str] = Counter()
        try:
            self._recover()
        except BaseException:
            self._store.close()
            raise
        self._store.listen(self)

    def close(self) -> None:
        """Hang up: the lease of what is held begins."""
        self._store.close()

    def take(self, ticket: int, most: int) -> list[TicketMessage]:
        """Acquire what waits on the queue now, as far as the limits go; empty if nothing waits.

        Args:
            ticket: Number of the ticket, of which nothing is held.
            most: How many messages it may have.

        Raises:
            InvalidRequest: The queue is gone, or the selector cannot be used.
            Unavailable: The service was away for too long.
        """
        settings = self._settings
        step, ahead = _STEP_RECORDS, 0
        if settings.max_bytes is None:
            step = ahead = _AHEAD_RECORDS
        self._numbers += 1
        taking = _Taking(self._numbers, ticket, min(most, step + ahead), most, ahead)
        with self._changed:
            self._taking = taking
        who = (taking.number, settings.queue, f"{_HOLDER}{ticket}", settings.selector)
        self._store.say(wire.SUBSCRIBE, *who, taking.limit, [])
        try:
            while self._is_step_whole(taking) and self._has_room(taking):
                taking.limit = min(most, taking.limit + step)
                self._store.say(wire.CREDIT, taking.number, taking.limit)
            if not taking.is_over:
                self._store.say(wire.CANCEL, taking.number)
                self._wait(lambda: taking.is_over)
        finally:
            with self._changed:
                self._taking = None
        if taking.ended is not None and not taking.came:
            raise taking.ended
        return taking.came

    def _is_step_whole(self, taking: _Taking) -> bool:
        """Wait until a step is whole; False if nothing more comes."""
        self._wait(
            lambda: taking.is_over or taking.is_step_whole or taking.caught_up_at == taking.limit
        )
        return not taking.is_over and taking.is_step_whole

    def _has_room(self, taking: _Taking) -> bool:
        limit = self._settings.max_bytes
        size = sum(message.message_bytes for message in taking.came) if limit is not None else 0
        return len(taking.came) < taking.most and (limit is None or size < limit)

    def settle(self, ticket: int) -> int:
        """Dequeue the messages of a ticket, durably; return how many were not its own any more.

        Such a message is another consumer's: the lease of this query had ended.

        Raises:
            StoreError: What became of the rest is not known; ask again.
        """
        lost = 0
        held = self.held.get(ticket, {})
        ids = [*held]
        starts = range(0, len(ids), wire.MAX_BATCH)
        parts = [ids[first : first + wire.MAX_BATCH] for first in starts]
        asked = [self._dequeue(part, ticket) for part in parts]
        for part, (done, outcomes) in zip(parts, asked, strict=True):
            done.complete()
            for message_id, error in zip(part, outcomes, strict=True):
                if isinstance(error, InvalidRequest | NotAcquired):
                    lost += 1
                elif error is not None:
                    raise error
                del held[message_id]
        self.held.pop(ticket, None)
        return lost

    def _dequeue(
        self, ids: Sequence[int], ticket: int
    ) -> tuple[Completion, list[StoreError | None]]:
        """Ask for messages to be dequeued; what came of each is there when that is complete."""
        results: list[StoreError | None] = []
        done = Completion()

        def on_complete(outcomes: Sequence[StoreError | None]) -> None:
            results.extend(outcomes)
            done.finish(None)

        queue, holder = self._settings.queue, f"{_HOLDER}{ticket}"
        self._store.dequeue_each(ids, queue, holder, on_complete)
        return done, results

    def last_read(self) -> int:
        """Ask for the last ticket that tasks of this query have begun to read; -1: none.

        Raises:
            Unavailable: The service was away for too long.
        """
        return self._store.published(self._name)

    def waiting_count(self) -> int:
        """Ask how many messages of the queue nobody holds; 0 if there is no such queue.

        Raises:
            Unavailable: The service was away for too long.
        """
        answers: list[Answer] = []
        done = threading.Event()

        def answered(answer: Answer) -> None:
            answers.append(answer)
            if answer[0]:
                done.set()

        self._store.ask_for_order(
            USAGE,
            self._settings.queue,
            (False, False, False),
            f"{self._name}:{time.time_ns()}",
            answered,
        )
        done.wait()
        _is_last, body, error = answers[-1]
        if error is not None:
            raise error
        figures = json.loads(body[0]) if body and body[0] else None
        return int(figures["depth"] - figures["acquired"]) if figures else 0

    def _recover(self) -> None:
        recovered, queue = self._store.recover(), self._settings.queue
        entries = recovered.entries.get(queue)
        if entries is None:
            message = f"there is no queue {shown(queue)}: create it, or name another one"
            raise InvalidRequest(message)
        for message_id, entry in entries.items():
            holder = entry.acquired_by or ""  # its own are told without the member's name
            if holder.startswith(_HOLDER):
                of_ticket = self.held.setdefault(int(holder.removeprefix(_HOLDER)), {})
                of_ticket[message_id] = TicketMessage(
                    message_id, entry.delivery_count, entry.message_bytes, entry.position > 0
                )
            elif _OTHER.match(holder):
                self.others[holder] += 1

    def _wait(self, is_there: Callable[[], bool]) -> None:
        """Wait for what the connection's thread tells.

        Nothing is said under its lock, as that thread tells of a new connection under the lock by
        which others say something.

        Raises:
            StoreError: The service has sent this member away, or was gone for too long.
        """
        until = time.monotonic() + self._settings.wait_s
        while True:
            with self._changed:
                if self._changed.wait_for(is_there, _LOOK_S):
                    return
            refusal = self._store.refusal
            if refusal is None:
                until = time.monotonic() + self._settings.wait_s
            elif not isinstance(refusal, Unavailable) or time.monotonic() > until:
                raise refusal

    # What the connection tells, on its thread.

    def connected(self, *, is_new_run: bool) -> None:  # noqa: ARG002
        """Say what is held; a ticket that was being taken has what has come of it.

        See `ServiceListener.connected`.
        """
        with self._changed:
            taking = self._taking
            if taking is not None:
                taking.is_over = True
                self._changed.notify_all()
            ids = [message_id for messages in self.held.values() for message_id in messages]
            held = [(self._settings.queue, ids)] if ids else []
            self._store.say(wire.WATCH, "", 0, held)

    def hear(self, kind: int, body: wire.Body) -> None:
        """Take in a frame of the service. See `ServiceListener.hear`."""
        if kind == wire.CHANGES:
            self._store.say(wire.SEEN)
        elif kind == wire.ASKED:
            self._store.say(wire.TOLD, body[0], _SILENT)
        else:
            with self._changed:
                if self._taking is not None:
                    self._took(self._taking, kind, body)
                self._changed.notify_all()

    def _took(self, taking: _Taking, kind: int, body: wire.Body) -> None:
        if kind == wire.GRANTED:
            held = self.held.setdefault(taking.ticket, {})
            for run in runs_of(body):
                rows = run.rows() if run.subscription == taking.number else ()
                for _number, message_id, entry, *content in rows:
                    position, _at, _priority, _expires_at, size, delivery_count, _detail = entry
                    along = taking.along(message_id, size, content)
                    message = TicketMessage(message_id, delivery_count, size, position > 0, along)
                    held[message_id] = message
                    taking.came.append(message)
        elif kind == wire.CAUGHT_UP and body[0] == taking.number:
            taking.caught_up_at = body[1]
        elif kind == wire.ENDED and body[0] == taking.number:
            _number, error, text = body
            taking.ended = wire.error_of(error, text) if error else None
            taking.is_over = True
