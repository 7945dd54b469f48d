"""Messages of a remote store: their ids, and how their content gets to the service and back."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from queue import SimpleQueue

from broker_shim.completion import OnComplete, nobody
from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.store import protocol as wire
from broker_shim.store.content_writer import LocalContentWriter, staged
from broker_shim.store.granted_run import GrantedRun
from broker_shim.store.interface import (
    ContentWriter,
    MessageHeader,
    NewMessageRun,
    StoredMessage,
    StoredRun,
)
from broker_shim.store.reads import Content, Loaded, OnLoaded, Prefetcher, load_outcome
from broker_shim.store.remote.pending_requests import Answer
from broker_shim.store.remote.service_connection import RemoteConnection
from sparkstore.core import records
from sparkstore.core.records import Record
from sparkstore.core.state_machine.arguments import (
    PIECE_BYTES,
    check_body,
    check_contents,
    check_header,
    check_message,
    check_new_run,
    check_size,
    with_lengths,
)

_IDS = 1_000
_FEW_IDS = 500
"""Left of a block: the next one is asked for, so that nobody has to wait for it."""
_UNDER_WAY = 64
"""Loads asked for before the answer of the first: of 1,024 that the service lets wait."""
_HEADERS = 10_000
"""Headers asked for in one frame."""
_MAX_BODY_BYTES = wire.MAX_FRAME_BYTES - (1 << 20)
"""Of a message that is sent in one frame; the rest is for its header."""


_Answers = SimpleQueue[Answer]


class RemoteMessages:
    """Makes messages and sends their content. Any thread may call it.

    A message is *fresh* until an enqueue of it is known to be durable: until then each enqueue
    brings header and content, as the one before may have been refused.

    Attributes:
        max_message_bytes: How long the content of one may be, inclusive.
    """

    def __init__(self, connection: RemoteConnection, max_message_bytes: int) -> None:
        self._connection, self.max_message_bytes = connection, max_message_bytes
        self._next_id = self._end_id = 0
        self._ids_ahead: deque[range] = deque()
        self._is_asking_ahead = False
        self._fresh: dict[int, bool] = {}  # True once the content was given

    def make(self, header: MessageHeader, body: bytes) -> StoredMessage:
        """Make a new message; this waits for the service when its block of ids is used up."""
        check_header(header)
        check_body(body)
        return self.made(self.take_ids(1)[0], header, body)

    def make_run(self, headers: Sequence[MessageHeader], bodies: Sequence[bytes]) -> StoredRun:
        """Make new messages; this waits for the service when its block of ids is used up."""
        check_new_run(NewMessageRun(headers, bodies, ""))
        check_contents(headers, bodies)
        headers = with_lengths(headers, bodies, self.max_message_bytes)
        ids = self.take_ids(len(bodies))
        self._fresh.update(zip(ids, map(bool, bodies), strict=True))
        return StoredRun(ids, headers, bodies)

    def made(self, message_id: int, header: MessageHeader, body: bytes) -> StoredMessage:
        """Make a new message with an id of `take_ids`; header and body are checked."""
        self._fresh[message_id] = bool(body)
        header = header._replace(header_bytes=len(header.header or b""), body_bytes=len(body))
        return StoredMessage(message_id, header, body)

    def content(self, message: StoredMessage) -> ContentWriter:
        """Send the content of a new message to the service, piece by piece.

        See `ContentCalls.content`.
        """
        check_message(message)
        refusals: list[StoreError] = []
        with self._connection.guard:
            self._connection.check_open()
            self._begin_content(message)

        def take(
            message: StoredMessage, offset: int, piece: bytes, on_complete: OnComplete
        ) -> None:
            self._send_piece(message.message_id, refusals, offset, piece, on_complete)

        def end(message: StoredMessage, on_complete: OnComplete) -> None:
            self._fresh[message.message_id] = True
            self._connection.ask(
                wire.DO, ((),), lambda error: on_complete(error or next(iter(refusals), None))
            )

        is_kept = message.header.durable
        return LocalContentWriter(message, take if is_kept else None, end, self.max_message_bytes)

    def stage(
        self, message: StoredMessage, pieces: Iterable[bytes], on_complete: OnComplete
    ) -> StoredMessage:
        """Send the content of a new message to the service from an iterator.

        See `ContentCalls.stage`.
        """

        def refuse(refusal: StoreError) -> None:
            if isinstance(message, StoredMessage):
                self._connection.requests.forget(message.message_id)
            self._connection.ask(wire.DO, ((),), on_complete, refusal)

        return staged(self.content, message, pieces, on_complete, refuse)

    def enqueued(self, message: StoredMessage, queue: str) -> Record:
        """Make the record that enqueues a message; content too large for a frame goes before.

        Raises:
            InvalidRequest: It is larger than `max_message_bytes`, or than can be kept in memory.
            Closed: The store is closed.
        """
        message_id, header = message.message_id, message.header
        check_size(header.body_bytes, self.max_message_bytes)
        if message_id not in self._fresh:
            return records.message_enqueued(0, queue, message_id, header.known(), None)
        body = None if message.is_staged else self.given(message_id, header, message.body)
        return records.message_enqueued(0, queue, message_id, header, body)

    def given(self, message_id: int, header: MessageHeader, body: bytes) -> bytes | None:
        """Return content to be sent with an enqueue; None: it is large, and goes before in pieces.

        Raises:
            InvalidRequest: It is larger than can be kept in memory.
            Closed: The store is closed.
        """
        if len(body) <= _MAX_BODY_BYTES:
            return body
        if not header.durable:
            refusal = f"a message of {len(body)} bytes must be durable to get to the store service"
            raise InvalidRequest(refusal)
        for at in range(0, len(body), PIECE_BYTES):
            self._send_piece(message_id, [], at, body[at : at + PIECE_BYTES], nobody)
        self._fresh[message_id] = True  # its pieces are kept until an enqueue is durable
        return None

    def noting(self, message_id: int, on_complete: OnComplete) -> OnComplete:
        """A completion of an enqueue, noted."""

        def noted(error: StoreError | None) -> None:
            if error is None:
                self.note_enqueued(message_id)
            on_complete(error)

        return noted

    def note_enqueued(self, message_id: int) -> None:
        """Forget the content of a message that the service has durably."""
        if self._fresh.pop(message_id, None):
            with self._connection.guard:
                self._connection.requests.forget(message_id)

    def note_told(self, message_ids: Iterable[int]) -> None:
        """Forget the content of messages that are on a queue, or that nobody brings again."""
        if not self._fresh:  # as mostly
            return
        with_content = [i for i in message_ids if self._fresh.pop(i, None)]
        with self._connection.guard:
            for message_id in with_content:
                self._connection.requests.forget(message_id)

    def take_ids(self, count: int) -> list[int]:
        """Ids of new messages, rising; waits for the service only if none are at hand.

        Waiting for a block of ids is done outside the guard, which the answer needs.

        Raises:
            Closed: The store is closed.
            StoreError: The service gives out no ids now.
        """
        guard, taken = self._connection.guard, list[int]()
        while True:
            with guard:
                self._connection.check_open()
                while len(taken) < count and self._has_ids():
                    end = min(self._end_id, self._next_id + count - len(taken))
                    taken += range(self._next_id, end)
                    self._next_id = end
                self._ask_ahead()
            if len(taken) == count:
                return taken
            first = self._connection.read(wire.IDS, _IDS)[0][0]
            with guard:
                self._ids_ahead.append(range(first, first + _IDS))

    def _has_ids(self) -> bool:
        """True if a block is at hand that is not used up; under the guard."""
        if self._next_id == self._end_id and self._ids_ahead:
            block = self._ids_ahead.popleft()
            self._next_id, self._end_id = block.start, block.stop
        return self._next_id < self._end_id

    def _ask_ahead(self) -> None:
        """Ask for a block before there is none; but for the first, which is waited for."""
        is_low = 0 < self._end_id < self._next_id + _FEW_IDS and not self._ids_ahead
        if not is_low or self._is_asking_ahead:
            return

        def answered(answer: Answer) -> None:
            _is_last, id_range, error = answer
            with self._connection.guard:
                self._is_asking_ahead = False
                if error is None:  # else whoever needs one asks, and is told
                    self._ids_ahead.append(range(id_range[0], id_range[0] + _IDS))

        self._is_asking_ahead = True
        self._connection.start_read(answered, wire.IDS, _IDS)

    def _begin_content(self, message: StoredMessage) -> None:
        if self._fresh.get(message.message_id, True):
            refusal = f"message {message.message_id} has its content already: make a new message"
            raise InvalidRequest(refusal)
        del self._fresh[message.message_id]

    def _send_piece(
        self,
        message_id: int,
        refusals: list[StoreError],
        body_offset: int,
        piece: bytes,
        on_complete: OnComplete,
    ) -> None:
        def noted(error: StoreError | None) -> None:
            if error is not None:
                refusals.append(error)
            on_complete(error)

        record = records.content_staged(0, message_id, body_offset, piece)
        self._connection.ask(wire.PIECE, (record,), noted, keep_for=message_id)


class RemoteReads:
    """The `Reads` of a remote store: one by one, or many that are under way together."""

    def __init__(self, connection: RemoteConnection) -> None:
        self._connection = connection
        self._prefetcher = Prefetcher(self._load_all)
        self._along: dict[int, Content] = {}

    def came_along(self, run: GrantedRun) -> None:
        """Keep content that came before it was asked for, for the next `at_hand`."""
        fields, header = None, MessageHeader()
        for message_id, its, content in zip(
            run.message_ids, run.headers, run.contents, strict=True
        ):
            if its is None or content is None:
                continue
            if its is not fields:  # else they share one
                fields, header = its, MessageHeader(*its)
            self._along[message_id] = header, content

    def load(self, message_id: int) -> StoredMessage:
        """Ask the service for a message with its content, and wait. See `ContentCalls.load`."""
        return self._loaded(message_id, self._ask(message_id))

    def at_hand(self, message_ids: Sequence[int]) -> dict[int, Content]:
        """Get the messages whose content the service sent along with their grant.

        The content of all others is with the service. See `ContentCalls.at_hand`.
        """
        along = ((number, self._along.pop(number, None)) for number in message_ids)
        return {number: content for number, content in along if content is not None}

    def read(self, message_id: int, offset: int, length: int) -> bytes:
        """Ask the service for a part of a message's content, and wait. See `ContentCalls.read`."""
        answers = self._connection.read(wire.PART, message_id, offset, length)
        return b"".join(piece for (piece,) in answers)

    def headers(self, message_ids: Sequence[int]) -> list[MessageHeader | None]:
        """Ask the service for the headers of messages, some at a time, and wait.

        See `ContentCalls.headers`.
        """
        headers = chain.from_iterable(
            answer
            for start in range(0, len(message_ids), _HEADERS)
            for (answer,) in self._connection.read(
                wire.HEADERS, [*message_ids[start : start + _HEADERS]]
            )
        )
        return [header and MessageHeader(*header) for header in headers]

    def prefetch(self, message_ids: Sequence[int], on_loaded: OnLoaded) -> None:
        """Load messages from the service on the prefetcher's thread.

        See `ContentCalls.prefetch`.
        """
        self._prefetcher.ask(message_ids, on_loaded)

    def close(self) -> None:
        """Tell who waits for a message that the store is closed."""
        self._prefetcher.close()

    def _ask(self, message_id: int) -> _Answers:
        answers = _Answers()
        self._connection.start_read(answers.put, wire.LOAD, message_id)
        return answers

    def _loaded(self, message_id: int, answers: _Answers) -> StoredMessage:
        pieces = self._connection.collect(answers)
        header = MessageHeader(*pieces[0][0])
        return StoredMessage(message_id, header, b"".join(piece for _, piece in pieces))

    def _load_all(self, message_ids: Sequence[int]) -> Iterator[Loaded]:
        """Load messages in order, with a few questions under way at once."""
        under_way: deque[tuple[int, _Answers | StoreError]] = deque()
        for message_id in message_ids:
            under_way.append((message_id, self._asked(message_id)))
            if len(under_way) == _UNDER_WAY:
                yield self._outcome(*under_way.popleft())
        while under_way:
            yield self._outcome(*under_way.popleft())

    def _asked(self, message_id: int) -> _Answers | StoreError:
        try:
            return self._ask(message_id)
        except StoreError as error:
            return error

    def _outcome(self, message_id: int, answers: _Answers | StoreError) -> Loaded:
        if isinstance(answers, StoreError):
            return answers
        return load_outcome(partial(self._loaded, answers=answers), message_id)
