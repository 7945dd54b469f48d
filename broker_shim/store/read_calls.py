"""The reads of a `MessageStore`, passed on to what does them: the same for every kind of store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker_shim.store.interface import MessageHeader, OnLoaded
from sparkstore.core.state_machine.arguments import (
    check_completion,
    check_message_id,
    check_message_ids,
    check_range,
)
from sparkstore.core.state_machine.values import StoredMessage

if TYPE_CHECKING:
    from broker_shim.store.local_reads import LocalReads
    from broker_shim.store.remote.message_reads import RemoteReads


class ReadCalls:
    """The part of a store that reads; it sets `_reads`."""

    _reads: LocalReads | RemoteReads

    def load(self, message_id: int) -> StoredMessage:
        """See `MessageStore.load`."""
        check_message_id(message_id)
        return self._reads.load(message_id)

    def at_hand(self, message_id: int) -> StoredMessage | None:
        """See `MessageStore.at_hand`."""
        check_message_id(message_id)
        return self._reads.at_hand(message_id)

    def read(self, message_id: int, offset: int, length: int) -> bytes:
        """See `MessageStore.read`."""
        check_message_id(message_id)
        check_range(offset, length)
        return self._reads.read(message_id, offset, length)

    def headers(self, message_ids: Sequence[int]) -> list[MessageHeader | None]:
        """See `MessageStore.headers`."""
        check_message_ids(message_ids)
        return self._reads.headers(message_ids)

    def prefetch(self, message_ids: Sequence[int], on_loaded: OnLoaded) -> None:
        """See `MessageStore.prefetch`."""
        check_message_ids(message_ids)
        check_completion(on_loaded)
        self._reads.prefetch(message_ids, on_loaded)
