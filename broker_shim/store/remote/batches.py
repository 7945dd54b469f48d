"""Batches of a remote store: many requests in one frame, decided, logged and answered together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from broker_shim.completion import OnComplete, OnEachComplete
from broker_shim.errors import Closed, InvalidRequest, StoreError
from broker_shim.store import protocol as wire
from broker_shim.store.interface import NewMessageRun, TransactionContext
from broker_shim.store.remote import member_records as made
from broker_shim.store.remote.remote_messages import RemoteMessages
from broker_shim.store.remote.remote_transaction import RemoteTransaction
from broker_shim.store.remote.service_connection import RemoteConnection
from sparkstore.core.records import Kind, MessageHeader, Record, message_enqueued
from sparkstore.core.state_machine.arguments import (
    check_batch,
    check_body,
    check_completion,
    check_header,
    check_new_run,
    check_queue,
)
from sparkstore.core.xids import Xid

MOST_BYTES = 1 << 20
"""Of content in one frame; one message may have more."""
_MOST_NUMBER = (1 << 63) - 1

Content = tuple[MessageHeader, bytes | None]


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
        indexes: Of the calls, in the batch.
        message_ids: Of the message of each call.
        contents: Header and content of each, to enqueue it.
    """

    record: Record
    indexes: list[int]
    message_ids: list[int]
    contents: list[Content] | None


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
        frame, size = list[Record](), 0
        for message_id, (header, body, queues) in zip(ids, messages, strict=True):
            more = len(body) + len(header.header or b"")
            if frame and (len(frame) >= wire.MAX_BATCH or size + more > MOST_BYTES):
                yield frame
                frame, size = [], 0
            size += more
            try:
                message = self._messages.made(message_id, header, body)
                first, *others = queues
                frame.append(self._messages.enqueued(message, first))
                known = message.header.known()
                for queue in others:
                    frame.append(message_enqueued(0, queue, message_id, known, None))
            except StoreError as refusal:
                transaction.spoil()
                refusals.append(refusal)
                return
        if frame:
            yield frame

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
            frames = _frames_of(messages.queue, self._contents(messages, ids, outcomes))
            self._ask_each(frames, outcomes, complete)
        return ids

    def acquire_each(
        self, message_ids: Sequence[int], queue: str, holder: str, on_complete: OnEachComplete
    ) -> None:
        """Ask for many messages of one queue, for one holder, in one frame.

        See `BatchCalls.acquire_each`.
        """
        check_batch(message_ids, on_complete)
        self._ask_entries(message_ids, partial(made.acquired, 0, queue, holder), on_complete)

    def dequeue_each(
        self,
        message_ids: Sequence[int],
        queue: str,
        holder: str | None,
        on_complete: OnEachComplete,
        outcome: Mapping[str, Any] | None = None,
    ) -> None:
        """Ask that many messages of one queue be removed, in one frame.

        See `BatchCalls.dequeue_each`.
        """
        check_batch(message_ids, on_complete)
        record = partial(made.dequeued, 0, queue, holder, outcome)
        self._ask_entries(message_ids, record, on_complete)

    def _contents(
        self,
        messages: NewMessageRun,
        message_ids: Sequence[int],
        outcomes: list[StoreError | None],
    ) -> Iterator[tuple[int, int, Content]]:
        """Index, id and content of each message that is not refused here."""
        singles = zip(messages.singles(), message_ids, strict=True)
        for index, (single, message_id) in enumerate(singles):
            try:
                _check(single)
                message = self._messages.made(message_id, single.headers[0], single.bodies[0])
                record = self._messages.enqueued(message, single.queue)
            except InvalidRequest as refusal:
                outcomes[index] = refusal
                continue
            assert record.message is not None
            yield index, message_id, (record.message, record.body)

    def _ask_entries(
        self, message_ids: Sequence[int], record: partial[Record], on_complete: OnEachComplete
    ) -> None:
        """Ask the same of many entries of one queue."""
        outcomes: list[StoreError | None] = [None] * len(message_ids)
        frames: list[EachFrame] = []
        try:
            one = record()._replace(message_id=None)
        except InvalidRequest as refusal:
            outcomes = [refusal] * len(message_ids)
        else:
            for index, message_id in enumerate(message_ids):
                if type(message_id) is not int or not 0 <= message_id <= _MOST_NUMBER:
                    outcomes[index] = _refusal_of(message_id, record)
                    continue
                if not frames or len(frames[-1].indexes) == wire.MAX_BATCH:
                    frames.append(EachFrame(one, [], [], None))
                frames[-1].indexes.append(index)
                frames[-1].message_ids.append(message_id)
        with self._connection.guard:
            self._connection.check_open()
            self._ask_each(frames, outcomes, on_complete)

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
        answers: list[StoreError | None] = [None] * len(frame.indexes)
        is_unwritable = False

        def complete(error: StoreError | None) -> None:
            if not is_unwritable:
                for index, answer in zip(frame.indexes, answers, strict=True):
                    outcomes[index] = error or answer
                on_complete(outcomes)

        def ask_each_alone() -> None:
            nonlocal is_unwritable
            is_unwritable = True

        body = (frame.record, frame.message_ids, frame.contents)
        many = ask_each_alone if len(frame.indexes) > 1 else None
        self._connection.ask(wire.BATCH, body, complete, on_unwritable=many, outcomes=answers)
        if is_unwritable:  # only one of them is, perhaps: its request is refused by itself
            self._ask_each([*_alone(frame)], outcomes, on_complete)


def _check(single: NewMessageRun) -> None:
    """Check a new message. Raises InvalidRequest if it is none."""
    (header,), (body,), queue = single
    check_header(header)
    check_body(body)
    check_queue(queue)
    if header.protocol is None:
        message = "a new message names the protocol of its header: this one has None"
        raise InvalidRequest(message)


def _frames_of(queue: str, contents: Iterator[tuple[int, int, Content]]) -> list[EachFrame]:
    """New messages of a queue by frame, bounded by count and bytes."""
    frames: list[EachFrame] = []
    size = 0
    for index, message_id, content in contents:
        taken = len(content[1] or b"") + content[0].header_bytes
        frame = frames[-1] if frames else None
        if frame is None or len(frame.indexes) == wire.MAX_BATCH or size + taken > MOST_BYTES:
            frame, size = EachFrame(Record(Kind.ENQUEUED, 0, queue), [], [], []), 0
            frames.append(frame)
        assert frame.contents is not None
        size += taken
        frame.indexes.append(index)
        frame.message_ids.append(message_id)
        frame.contents.append(content)
    return frames


def _alone(frame: EachFrame) -> Iterator[EachFrame]:
    for at, (index, message_id) in enumerate(zip(frame.indexes, frame.message_ids, strict=True)):
        content = None if frame.contents is None else [frame.contents[at]]
        yield EachFrame(frame.record, [index], [message_id], content)


def _refusal_of(message_id: object, record: partial[Record]) -> StoreError:
    """Why a value is no id of a message."""
    try:
        record.func(message_id, *record.args[1:])
    except InvalidRequest as refusal:
        return refusal
    return InvalidRequest(f"message id {message_id}: from 0 to {_MOST_NUMBER}")


def _failing(on_complete: OnEachComplete, count: int) -> OnComplete:
    """Make the completion that tells each call of a batch the same."""
    return lambda error: on_complete([error] * count)


def _nobody(_outcomes: Sequence[StoreError | None]) -> None:
    """A later frame of the batch tells."""
