"""Loading ahead: whatever one message comes to, the others are answered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from queue import SimpleQueue

import pytest

from broker_shim.errors import CorruptData, Unavailable
from broker_shim.store.interface import MessageHeader, StoredMessage
from broker_shim.store.reads import Loaded, Prefetcher, load_outcome


class Panic(BaseException):
    """As a fault in the Rust of deltalake comes out in Python."""


@pytest.mark.parametrize("error", [Panic("wrong state"), ValueError("a bug")])
def test_whatever_one_load_raises_the_next_ones_are_answered(error: BaseException) -> None:
    def load(message_id: int) -> StoredMessage:
        if message_id == 2:
            raise error
        if message_id == 3:
            raise CorruptData("a piece is missing")
        return StoredMessage(message_id, MessageHeader(), b"x")

    def load_all(message_ids: Sequence[int]) -> Iterator[Loaded]:
        return (load_outcome(load, message_id) for message_id in message_ids)

    told = SimpleQueue[tuple[int, Loaded]]()
    prefetcher = Prefetcher(load_all)
    for message_ids in ((1, 2, 3), (4,)):
        prefetcher.ask(message_ids, lambda *answer: told.put(answer))
    found = [told.get(timeout=30) for _ in range(4)]
    prefetcher.close()
    assert [message_id for message_id, _ in found] == [1, 2, 3, 4]
    kinds = [StoredMessage, Unavailable, CorruptData, StoredMessage]
    assert [type(outcome) for _, outcome in found] == kinds
