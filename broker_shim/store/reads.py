"""How a store reads: the calls, checked; a thread that loads ahead; and the reads of a local store.

Why nobody waits in vain for what is to be loaded: what was asked is in the line, or in the hand of
the thread, until it was told. `close` lets the thread tell `Closed` to all that is left, and only
then ends it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from queue import SimpleQueue
from typing import Protocol

from broker_shim.errors import Closed, InvalidRequest, StoreError, Unavailable
from broker_shim.store.sink import Sink
from sparkstore.core.records import MessageHeader
from sparkstore.core.state_machine.arguments import (
    check_completion,
    check_message_id,
    check_message_ids,
    check_range,
)
from sparkstore.core.state_machine.call_values import StoredMessage
from sparkstore.core.state_machine.state_machine import StoreStateMachine

_log = logging.getLogger(__name__)

Content = tuple[MessageHeader, bytes]
"""Header and content of a message, as its store gave them back."""
Loaded = StoredMessage | StoreError
OnLoaded = Callable[[int, Loaded], None]
"""Gets a message id, and the message or why it cannot be had."""
_Asked = tuple[Sequence[int], OnLoaded]


class Reads(Protocol):
    """The reads of one store, whose arguments are checked before.

    See `ContentCalls` for what each promises.
    """

    def load(self, message_id: int) -> StoredMessage:
        """Get a message with its content, and wait for storage. See `ContentCalls.load`."""

    def at_hand(self, message_ids: Sequence[int]) -> dict[int, Content]:
        """Get the messages whose content is in memory, without waiting.

        See `ContentCalls.at_hand`.
        """

    def read(self, message_id: int, offset: int, length: int) -> bytes:
        """Get a part of a message's content, and wait for storage. See `ContentCalls.read`."""

    def headers(self, message_ids: Sequence[int]) -> list[MessageHeader | None]:
        """Get the headers of many messages, and wait for storage. See `ContentCalls.headers`."""

    def prefetch(self, message_ids: Sequence[int], on_loaded: OnLoaded) -> None:
        """Load messages on a thread of the store's own. See `ContentCalls.prefetch`."""

    def close(self) -> None:
        """Tell who waits for a message that the store is closed."""


_TOGETHER = 256
"""Messages that are read at once."""


class ReadCalls:
    """The part of `ContentCalls` that reads; the store sets `_reads`."""

    _reads: Reads

    def load(self, message_id: int) -> StoredMessage:
        """Check the argument, then load the message. See `ContentCalls.load`."""
        check_message_id(message_id)
        return self._reads.load(message_id)

    def at_hand(self, message_ids: Sequence[int]) -> dict[int, Content]:
        """Check the arguments, then get the messages in memory. See `ContentCalls.at_hand`."""
        check_message_ids(message_ids)
        return self._reads.at_hand(message_ids)

    def read(self, message_id: int, offset: int, length: int) -> bytes:
        """Check the arguments, then read a part of the content. See `ContentCalls.read`."""
        check_message_id(message_id)
        check_range(offset, length)
        return self._reads.read(message_id, offset, length)

    def headers(self, message_ids: Sequence[int]) -> list[MessageHeader | None]:
        """Check the arguments, then get the headers. See `ContentCalls.headers`."""
        check_message_ids(message_ids)
        return self._reads.headers(message_ids)

    def prefetch(self, message_ids: Sequence[int], on_loaded: OnLoaded) -> None:
        """Check the arguments, then load the messages ahead. See `ContentCalls.prefetch`."""
        check_message_ids(message_ids)
        check_completion(on_loaded)
        self._reads.prefetch(message_ids, on_loaded)


class Prefetcher:
    """Loads messages on a thread of its own, in the order asked, and tells each of them.

    Any thread may call it; the thread starts with the first call.

    Args:
        load_all: Messages by id, in that order, one for each; it raises nothing.
    """

    def __init__(self, load_all: Callable[[Sequence[int]], Iterator[Loaded]]) -> None:
        self._load_all = load_all
        self._guard = threading.Lock()
        self._line: SimpleQueue[_Asked | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def ask(self, message_ids: Sequence[int], on_loaded: OnLoaded) -> None:
        """Load messages after all that was asked for before.

        Raises:
            Closed: `close` was called.
        """
        with self._guard:
            if self._is_closed:
                raise _closed()
            self._line.put((message_ids, on_loaded))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="prefetch", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Tell `Closed` to what is still to be loaded, then end the thread. May be called twice."""
        with self._guard:
            self._is_closed = True
            self._line.put(None)
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while (asked := self._line.get()) is not None:
            message_ids, on_loaded = asked
            untold = iter(message_ids)
            loaded = self._load_all(message_ids)
            while not self._is_closed and (message_id := next(untold, None)) is not None:
                _tell(on_loaded, message_id, next(loaded))
            for message_id in untold:
                _tell(on_loaded, message_id, _closed())


class LocalReads:
    """The `Reads` of a store that decides in this process.

    Args:
        machine: Says what is on a queue, and has what the sink has not.
        sink: Has the rest.
        holding: The store's lock for a moment; entering it raises Closed if the store is closed.
    """

    def __init__(
        self,
        machine: StoreStateMachine,
        sink: Sink,
        holding: Callable[[], AbstractContextManager[object]],
    ) -> None:
        self._machine, self._sink, self._holding = machine, sink, holding
        self._prefetcher = Prefetcher(self._load_all)

    def load(self, message_id: int) -> StoredMessage:
        """Get a message from memory, or from the sink. See `ContentCalls.load`."""
        message = self._volatile(message_id)
        return message or StoredMessage(message_id, *self._sink.load(message_id))

    def at_hand(self, message_ids: Sequence[int]) -> dict[int, Content]:
        """Get the messages whose content is in memory, without the lock.

        There are two look-ups for each, and each is atomic. See `ContentCalls.at_hand`.
        """
        contents = self._sink.at_hand(message_ids)
        if self._machine.volatile:
            volatile = map(self._machine.volatile.get, message_ids)
            contents |= {message[0]: message[1:3] for message in volatile if message is not None}
        return contents

    def read(self, message_id: int, offset: int, length: int) -> bytes:
        """Read a part of the content from memory, or from the sink. See `ContentCalls.read`."""
        message = self._volatile(message_id)
        if message is not None:
            return message.body[offset : offset + length]
        return self._sink.read(message_id, offset, length)

    def headers(self, message_ids: Sequence[int]) -> list[MessageHeader | None]:
        """Get headers from memory, and the others from the sink. See `ContentCalls.headers`."""
        with self._holding():
            volatile, logged_messages = self._machine.volatile, self._machine.state.messages
            headers: dict[int, MessageHeader | None]
            headers = {i: volatile[i].header for i in message_ids if i in volatile}
            logged = [i for i in message_ids if i in logged_messages and i not in headers]
        if len(logged) == len(message_ids):
            return self._sink.headers(logged)
        headers.update(zip(logged, self._sink.headers(logged), strict=True))
        return [headers.get(message_id) for message_id in message_ids]

    def prefetch(self, message_ids: Sequence[int], on_loaded: OnLoaded) -> None:
        """Load messages on the prefetcher's thread. See `ContentCalls.prefetch`."""
        self._prefetcher.ask(message_ids, on_loaded)

    def close(self) -> None:
        """Tell who waits for a message that the store is closed."""
        self._prefetcher.close()

    def _volatile(self, message_id: int) -> StoredMessage | None:
        """A message that is on a queue, or in a branch in doubt, if its content is here."""
        with self._holding():
            machine = self._machine
            message = machine.volatile.get(message_id)
            is_in_doubt = message_id in machine.in_doubt and message_id in machine.state.staged
            is_known = message_id in machine.state.messages or is_in_doubt
            if message is None and not is_known:
                refusal = f"message {message_id} is on no queue"
                raise InvalidRequest(refusal)
            return message

    def _load_all(self, message_ids: Sequence[int]) -> Iterator[Loaded]:
        """Load messages in their order, some together: what lies on disk in the order of that."""
        contents: dict[int, Content] = {}
        for index, message_id in enumerate(message_ids):
            if not index % _TOGETHER:
                contents = self._brought(message_ids[index : index + _TOGETHER])
            content = contents.get(message_id)
            if content is None:
                yield load_outcome(self.load, message_id)
            else:
                yield StoredMessage(message_id, *content)

    def _brought(self, message_ids: Sequence[int]) -> dict[int, Content]:
        """Bring messages into memory; those that are on a queue, as far as that was possible."""
        try:
            self._sink.read_ahead(message_ids)
        except BaseException:  # noqa: BLE001 - a panic of deltalake is no Exception
            _log.exception("messages cannot be read together: they are loaded singly")
        return self._on_queues(self.at_hand(message_ids))

    def _on_queues(self, contents: dict[int, Content]) -> dict[int, Content]:
        """Choose the messages that are on a queue; none if the store is closed."""
        with suppress(StoreError), self._holding():
            known = self._machine.state.messages
            return {number: content for number, content in contents.items() if number in known}
        return {}


def load_outcome(load: Callable[[int], StoredMessage], message_id: int) -> Loaded:
    """Load a message, or return why that failed: whatever is raised, the next one is loaded."""
    try:
        return load(message_id)
    except StoreError as error:
        return error
    except BaseException as error:  # noqa: BLE001 - a panic of deltalake is no Exception
        _log.exception("message %d cannot be loaded", message_id)
        return Unavailable(f"message {message_id} cannot be loaded: {error!r}")


def _tell(on_loaded: OnLoaded, message_id: int, loaded: Loaded) -> None:
    try:
        on_loaded(message_id, loaded)
    except Exception:  # noqa: BLE001 - a caller's bug must not stop everybody's loads
        _log.exception("a callback of prefetch failed")


def _closed() -> Closed:
    return Closed("the store is closed: open a new one")
