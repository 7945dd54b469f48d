"""Stores whose content a test can make unreadable: the one failure that no call can cause."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from broker_shim.errors import StoreError
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import Content, OnLoaded, StoredMessage
from tests.support.stores.stores import RecordedMessageStore


class Damaged:
    """Put before a store's class: the content of some messages cannot be read.

    Attributes:
        errors: Why, by message id.
    """

    errors: dict[int, StoreError]

    def load(self, message_id: int) -> StoredMessage:
        """Load a message, unless it is damaged."""
        self._check(message_id)
        return super().load(message_id)  # type: ignore[misc,no-any-return]

    def read(self, message_id: int, offset: int, length: int) -> bytes:
        """Read a part of a message, unless it is damaged."""
        self._check(message_id)
        return super().read(message_id, offset, length)  # type: ignore[misc,no-any-return]

    def at_hand(self, message_ids: Sequence[int]) -> dict[int, Content]:
        """Find the messages in memory that are not damaged."""
        whole = [each for each in message_ids if each not in self.errors]
        return super().at_hand(whole)  # type: ignore[misc,no-any-return]

    def prefetch(self, message_ids: Sequence[int], on_loaded: OnLoaded) -> None:
        """Load messages, and tell why the damaged ones cannot be."""
        parent: Any = super()
        parent.prefetch([each for each in message_ids if each not in self.errors], on_loaded)
        for message_id in message_ids:
            if message_id in self.errors:
                on_loaded(message_id, self.errors[message_id])

    def _check(self, message_id: int) -> None:
        if message_id in self.errors:
            raise self.errors[message_id]


class DamagedDeltaStore(Damaged, DeltaMessageStore):
    """A store over Delta."""

    def __init__(self, *arguments: Any) -> None:
        self.errors = {}
        super().__init__(*arguments)


class DamagedRecordedStore(Damaged, RecordedMessageStore):
    """A store of tier 2 over a list of records."""

    @staticmethod
    def now_us() -> int:
        """The time of the broker above it."""
        return time.time_ns() // 1000

    def __init__(self, *arguments: Any) -> None:
        self.errors = {}
        super().__init__(*arguments)
