"""Batches of a remote store: many requests in one frame, decided, logged and answered together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress, groupby
from typing import Any, NamedTuple

from broker_shim.completion import OnComplete, OnEachComplete, refusal_of
from broker_shim.errors import Closed, InvalidRequest, StoreError
from broker_shim.store import protocol as wire
from broker_shim.store.interface import NewMessageRun, TransactionContext
from broker_shim.store.remote import member_records as made
from broker_shim.store.remote.remote_messages import RemoteMessages
from broker_shim.store.remote.remote_transaction import RemoteTransaction
from broker_shim.store.remote.service_connection import RemoteConnection
from sparkstore.core.packed_integers import as_range, is_run
from sparkstore.core.records import Kind, MessageHeader, Record, each_header, message_enqueued
from sparkstore.core.state_machine.arguments import (
    check_completion,
    check_contents,
    check_message_id,
    check_new_run,
    check_queue,
    check_stored_run,
    with_lengths,
)
from sparkstore.core.state_machine.call_values import EnqueueCall, EntryCall, StoredRun
from sparkstore.core.xids import Xid

MOST_BYTES = 1 << 20
"""Of content in one frame; one message may have more."""
_MOST_NUMBER = (1 << 63) - 1


class RoutedMessage(NamedTuple):
    """A new message, and all queues that it goes to.

    Attributes:
        header: Of the message; it names a protocol.
        body: The content of the message.
        queues: Names of one or more queues.
    """

    header: MessageHeader
    body: bytes
    queues: Sequence[str]


class EachFrame(NamedTuple):
    """Calls of a batch that go in one frame.

    Attributes:
        record: For each message, without its id and content.
        start: The index of the first call, in the batch; the others follow.
        message_ids: Of the message of each call.
        headers: To enqueue: of each message, or one that all of them share.
        bodies: To enqueue: the content of each.
    """

    record: Record
    start: int
    message_ids: Sequence[int]
    headers: Sequence[MessageHeader] = ()
    bodies: Sequence[bytes | None] = ()

    def asked(self) -> tuple[int, tuple[Any, ...]]:
        """Its type and body for a service, without the number."""
        ids, count = as_range(self.message_ids), len(self.message_ids)
        if is_run(ids):
            contents = (self.headers, self.bodies) if self.bodies else (None, None)
            return wire.RUN, (self.record, ids[0], count, *contents)
        pairs = zip(each_header(self.headers, count), self.bodies, strict=True)
        return wire.BATCH, (self.record, [*ids], [*pairs] if self.bodies else None)

    def part(self, start: int, end: int) -> EachFrame:
        """Some of its calls."""
        part = slice(start, end)
        headers = self.headers if len(self.headers) < 2 else self.headers[part]
        ids, bodies = self.message_ids[part], self.bodies[part]
        return EachFrame(self.record, self.start + start, ids, headers, bodies)


class RemoteBatches:
    """`BatchCalls` of a `RemoteMessageStore`."""

    _connection: RemoteConnection
    _messages: RemoteMessages
    begin: Callable[[], TransactionContext]
    prepare: Callable[[TransactionContext, Xid, OnComplete], None]

    def stage_new(
        self, messages: Sequence[RoutedMessage], xid: Xid, on_complete: OnComplete
    ) -> None:
        """Prepare a branch of new messages, in few frames.

        Completes with the first refusal of a message, then nothing of the branch is there; else as
        `BranchCalls.prepare`.

        Raises:
            StoreError: The service gives out no ids now.
        """
        ids = self._messages.take_ids(len(messages))
        refusals: list[StoreError] = []

        def added(error: StoreError | None) -> None:
            if error is not None:
                refusals.append(error)

        def complete(error: StoreError | None) -> None:
            self._messages.note_told(ids)
            on_complete(next(iter(refusals), error))

        with self._connection.guard:
            self._connection.check_open()
            transaction = self.begin()
            assert isinstance(transaction, RemoteTransaction)
            for frame in self._added_frames(messages, ids, transaction, refusals):
                body = (transaction.transaction, frame)
                noted = transaction.noting(added)
                self._connection.ask(wire.ADD, body, noted, on_unwritable=transaction.spoil)
            self.prepare(transaction, xid, complete)

    def _added_frames(
        self,
        messages: Sequence[RoutedMessage],
        ids: Sequence[int],
        transaction: RemoteTransaction,
        refusals: list[StoreError],
    ) -> Iterator[list[Record]]:
        """Records of a branch, by frame; the first for each message brings its content.

        A message that is refused here spoils the transaction, and nothing more is sent of it.
        """
        asked = list[Record]()
        for message_id, (header, body, queues) in zip(ids, messages, strict=True):
            try:
                message = self._messages.made(message_id, header, body)
                first, *others = queues
                asked.append(self._messages.enqueued(message, first))
                known = message.header.known()
                for queue in others:
                    asked.append(message_enqueued(0, queue, message_id, known, None))
            except StoreError as refusal:
                transaction.spoil()
                refusals.append(refusal)
                return
        yield from frames_of(asked)

    def enqueue_new(self, messages: NewMessageRun, on_complete: OnEachComplete) -> Sequence[int]:
        """Send new messages with their contents in one frame of many requests.

        See `BatchCalls.enqueue_new`.
        """
        check_completion(on_complete)
        count = len(check_new_run(messages).bodies)
        outcomes: list[StoreError | None] = [None] * count
        try:
            ids = self._messages.take_ids(count)
        except Closed:
            raise
        except StoreError as refusal:
            self._connection.ask(wire.DO, ((),), _failing(on_complete, count), refusal)
            return [0] * count

        def complete(results: Sequence[StoreError | None]) -> None:
            self._messages.note_told(ids)
            on_complete(results)

        with self._connection.guard:
            self._connection.check_open()
            frames = [*self._frames(messages, ids, 0, outcomes)]
            self._ask_each(frames, outcomes, complete)
        return ids

    def _frames(
        self,
        messages: NewMessageRun,
        message_ids: Sequence[int],
        start: int,
        outcomes: list[StoreError | None],
    ) -> Iterator[EachFrame]:
        """The frames of new messages, but for those that are refused here.

        If something is wrong with one of them, each is looked at by itself.
        """
        headers, bodies, queue = messages
        try:
            check_contents(headers, bodies)
            check_queue(queue)
            headers = with_lengths(headers, bodies, self._messages.max_message_bytes)
        except InvalidRequest as refusal:
            if len(bodies) == 1:
                outcomes[start] = refusal
                return
            for index, single in enumerate(messages.singles()):
                ids = message_ids[index : index + 1]
                yield from self._frames(single, ids, start + index, outcomes)
            return
        frame = EachFrame(Record(Kind.ENQUEUED, 0, queue), start, message_ids, headers, bodies)
        yield from self._content_frames(frame, bodies, outcomes)

    def _content_frames(
        self, whole: EachFrame, bodies: Sequence[bytes], outcomes: list[StoreError | None]
    ) -> Iterator[EachFrame]:
        """Cut a frame of messages with their contents; a large message is in one of its own.

        Content that is too large for a frame goes before it, in pieces. What is not durable has
        none, and is refused here.
        """
        if max(map(len, bodies)) <= MOST_BYTES:
            headers = each_header(whole.headers, len(bodies))
            lengths = [len(header.header or b"") for header in headers]
            yield from _cut(whole, [*map(int.__add__, map(len, bodies), lengths)])
            return
        for index, body in enumerate(bodies):
            frame = whole.part(index, index + 1)
            try:
                given = self._messages.given(frame.message_ids[0], frame.headers[0], body)
            except InvalidRequest as refusal:
                outcomes[frame.start] = refusal
            else:
                yield frame._replace(bodies=[given])

    def _stored_frames(
        self, record: Record, stored: StoredRun, outcomes: list[StoreError | None]
    ) -> Iterator[EachFrame]:
        """The frames that enqueue messages that have their ids: new ones with all they bring."""
        ids, headers, bodies = stored
        if bodies:
            frame = EachFrame(record, 0, ids, headers, bodies)
            yield from self._content_frames(frame, bodies, outcomes)
        else:
            known, none = [header.known() for header in headers], [None] * len(ids)
            yield from _cut(EachFrame(record, 0, ids, known, none), [0] * len(ids))

    def ask_run(self, call: EntryCall | EnqueueCall, on_complete: OnComplete) -> None:
        """Ask the same of many messages of one queue."""
        most = self._messages.max_message_bytes
        stored = check_stored_run(call.message, most) if isinstance(call, EnqueueCall) else None
        message_ids = (stored or call).message_ids  # type: ignore[union-attr]
        outcomes: list[StoreError | None] = [None] * len(message_ids)
        frames, start = list[EachFrame](), 0
        try:
            record = made.record_of(call)
        except InvalidRequest as refusal:
            outcomes = [refusal] * len(message_ids)
        else:
            if stored is not None:
                frames += self._stored_frames(record, stored, outcomes)
            for are_ids, ids in _ids_in(message_ids) if stored is None else ():
                end = start + len(ids)
                if are_ids:
                    frames += _cut(EachFrame(record, start, ids), [0] * len(ids))
                else:
                    outcomes[start:end] = [refusal_of_id(number) for number in ids]
                start = end

        def complete(results: Sequence[StoreError | None]) -> None:
            if stored is not None and stored.bodies:  # who was refused may bring them again
                done = (error is None for error in results)
                self._messages.note_told(compress(message_ids, done))
            on_complete(refusal_of(results))

        with self._connection.guard:
            self._connection.check_open()
            self._ask_each(frames, outcomes, complete)

    def _ask_each(
        self,
        frames: Sequence[EachFrame],
        outcomes: list[StoreError | None],
        on_complete: OnEachComplete,
    ) -> None:
        """Send frames, under the guard; answers come in their order, and the last one tells all."""
        last = len(frames) - 1
        for number, frame in enumerate(frames):
            self._ask_frame(frame, outcomes, on_complete if number == last else _nobody)
        if not frames:
            self._connection.ask(wire.DO, ((),), lambda _error: on_complete(outcomes))

    def _ask_frame(
        self, frame: EachFrame, outcomes: list[StoreError | None], on_complete: OnEachComplete
    ) -> None:
        count, is_unwritable = len(frame.message_ids), False
        answers: list[StoreError | None] = [None] * count

        def complete(error: StoreError | None) -> None:
            if not is_unwritable:
                results = answers if error is None else [error] * count
                outcomes[frame.start : frame.start + count] = results
                on_complete(outcomes)

        def ask_each_alone() -> None:
            nonlocal is_unwritable
            is_unwritable = True

        kind, body = frame.asked()
        many = ask_each_alone if count > 1 else None
        self._connection.ask(kind, body, complete, on_unwritable=many, outcomes=answers)
        if is_unwritable:  # only one of them is, perhaps: its request is refused by itself
            alone = [frame.part(index, index + 1) for index in range(count)]
            self._ask_each(alone, outcomes, on_complete)


def _cut(frame: EachFrame, sizes: Sequence[int]) -> Iterator[EachFrame]:
    """Cut a frame so that count and bytes of each part are bounded.

    Args:
        frame: All of it.
        sizes: Bytes of each message.
    """
    if len(sizes) <= wire.MAX_BATCH and sum(sizes) <= MOST_BYTES:
        yield frame
        return
    start, size = 0, 0
    for index, more in enumerate(sizes):
        if index > start and (index - start == wire.MAX_BATCH or size + more > MOST_BYTES):
            yield frame.part(start, index)
            start, size = index, 0
        size += more
    yield frame.part(start, len(sizes)) if start else frame


def _ids_in(message_ids: Sequence[int]) -> Iterator[tuple[bool, Sequence[int]]]:
    """Part what a caller named, in order, into ids of messages and what is none."""
    are_ids = {*map(type, message_ids)} == {int} and min(message_ids) >= 0
    if are_ids and max(message_ids) <= _MOST_NUMBER:  # as nearly always
        yield True, message_ids
    else:
        yield from ((are_ids, [*alike]) for are_ids, alike in groupby(message_ids, is_id))


def frames_of(asked: Iterable[Record]) -> Iterator[list[Record]]:
    """Part what is asked in a transaction into frames, none of which is too large."""
    frame, size = list[Record](), 0
    for record in asked:
        header = record.message and record.message.header
        more = len(record.body or b"") + len(header or b"")
        if frame and (len(frame) >= wire.MAX_BATCH or size + more > MOST_BYTES):
            yield frame
            frame, size = [], 0
        size += more
        frame.append(record)
    yield frame


def is_id(message_id: object) -> bool:
    """True if a value may be the id of a message."""
    return type(message_id) is int and 0 <= message_id <= _MOST_NUMBER


def refusal_of_id(message_id: object) -> StoreError:
    """Why a value is no id of a message."""
    try:
        check_message_id(message_id)
    except InvalidRequest as refusal:
        return refusal
    return InvalidRequest(f"message id {message_id}: from 0 to {_MOST_NUMBER}")


def _failing(on_complete: OnEachComplete, count: int) -> OnComplete:
    """Make the completion that tells each call of a batch the same."""
    return lambda error: on_complete([error] * count)


def _nobody(_outcomes: Sequence[StoreError | None]) -> None:
    """A later frame of the batch tells."""
