"""What a remote store reads of its messages: one by one, or many that are under way together."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain
from queue import SimpleQueue

from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.service import protocol as wire
from broker_shim.store.interface import OnLoaded
from broker_shim.store.reads import Loaded, Prefetcher
from broker_shim.store.remote.connection import RemoteConnection
from broker_shim.store.remote.pending_reads import Answer, collect
from sparkstore.core.records import MessageHeader
from sparkstore.core.state_machine.values import StoredMessage

_UNDER_WAY = 64
"""Loads asked for before the answer of the first: of 1,024 that the service lets wait."""
_HEADERS = 10_000
"""Asked for in one frame."""

_Answers = SimpleQueue[Answer]


class RemoteReads:
    """See `MessageStore` for what its methods promise."""

    def __init__(self, connection: RemoteConnection) -> None:
        self._connection = connection
        self._prefetcher = Prefetcher(self._load_all)

    def load(self, message_id: int) -> StoredMessage:
        """See `MessageStore.load`."""
        return self._loaded(message_id, self._ask(message_id))

    def at_hand(self, _message_id: int) -> None:
        """See `MessageStore.at_hand`: content is with the service."""

    def read(self, message_id: int, offset: int, length: int) -> bytes:
        """See `MessageStore.read`."""
        if offset < 0 or length < 0:
            refusal = f"offset {offset} and length {length}: neither may be negative"
            raise InvalidRequest(refusal)
        answers = self._connection.read(wire.PART, message_id, offset, length)
        return b"".join(piece for (piece,) in answers)

    def headers(self, message_ids: Sequence[int]) -> list[MessageHeader | None]:
        """See `MessageStore.headers`."""
        found = chain.from_iterable(
            answer
            for start in range(0, len(message_ids), _HEADERS)
            for (answer,) in self._connection.read(
                wire.HEADERS, [*message_ids[start : start + _HEADERS]]
            )
        )
        return [header and MessageHeader(*header) for header in found]

    def prefetch(self, message_ids: Sequence[int], on_loaded: OnLoaded) -> None:
        """See `MessageStore.prefetch`."""
        self._prefetcher.ask(message_ids, on_loaded)

    def close(self) -> None:
        """Tell who waits for a message that the store is closed."""
        self._prefetcher.close()

    def _ask(self, message_id: int) -> _Answers:
        answers = _Answers()
        self._connection.start_read(answers.put, wire.LOAD, message_id)
        return answers

    def _loaded(self, message_id: int, answers: _Answers) -> StoredMessage:
        found = collect(answers)
        header = MessageHeader(*found[0][0])
        return StoredMessage(message_id, header, b"".join(piece for _, piece in found))

    def _load_all(self, message_ids: Sequence[int]) -> Iterator[Loaded]:
        """Asks ahead; what was asked for and is not taken any more is answered to nobody."""
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
        try:
            return self._loaded(message_id, answers)
        except StoreError as error:
            return error
