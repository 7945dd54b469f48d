"""The reads of a store that decides in this process: what is on a queue, whole or in part."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

from broker_shim.errors import InvalidRequest, StoreError, Unavailable
from broker_shim.store.interface import OnLoaded
from broker_shim.store.prefetch import Loaded, Prefetcher
from broker_shim.store.sink import Sink
from sparkstore.core.records import MessageHeader
from sparkstore.core.state_machine.state_machine import StoreStateMachine
from sparkstore.core.state_machine.values import StoredMessage

_log = logging.getLogger(__name__)


class LocalReads:
    """See `MessageStore` for what its methods promise.

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
        """See `MessageStore.load`."""
        message = self._volatile(message_id)
        return message or StoredMessage(message_id, *self._sink.load(message_id))

    def at_hand(self, message_id: int) -> StoredMessage | None:
        """See `MessageStore.at_hand`: two look-ups, each atomic, so without the lock."""
        message = self._machine.volatile.get(message_id)
        if message is not None:
            return message
        content = self._sink.at_hand(message_id)
        return None if content is None else StoredMessage(message_id, *content)

    def read(self, message_id: int, offset: int, length: int) -> bytes:
        """See `MessageStore.read`."""
        message = self._volatile(message_id)
        if message is not None:
            return message.body[offset : offset + length]
        return self._sink.read(message_id, offset, length)

    def headers(self, message_ids: Sequence[int]) -> list[MessageHeader | None]:
        """See `MessageStore.headers`."""
        with self._holding():
            volatile, there = self._machine.volatile, self._machine.state.messages
            found: dict[int, MessageHeader | None]
            found = {i: volatile[i].header for i in message_ids if i in volatile}
            logged = [i for i in message_ids if i in there and i not in found]
        if len(logged) == len(message_ids):
            return self._sink.headers(logged)
        found.update(zip(logged, self._sink.headers(logged), strict=True))
        return [found.get(message_id) for message_id in message_ids]

    def prefetch(self, message_ids: Sequence[int], on_loaded: OnLoaded) -> None:
        """See `MessageStore.prefetch`."""
        self._prefetcher.ask(message_ids, on_loaded)

    def close(self) -> None:
        """Tell who waits for a message that the store is closed."""
        self._prefetcher.close()

    def _volatile(self, message_id: int) -> StoredMessage | None:
        """A message that is on a queue, if its content is here."""
        with self._holding():
            message = self._machine.volatile.get(message_id)
            if message is None and message_id not in self._machine.state.messages:
                refusal = f"message {message_id} is on no queue"
                raise InvalidRequest(refusal)
            return message

    def _load_all(self, message_ids: Sequence[int]) -> Iterator[Loaded]:
        for message_id in message_ids:
            try:
                yield self.load(message_id)
            except StoreError as error:
                yield error
            except Exception as error:  # noqa: BLE001 - else nobody would load the next one
                _log.exception("message %d cannot be loaded", message_id)
                yield Unavailable(f"message {message_id} cannot be loaded: {error!r}")
