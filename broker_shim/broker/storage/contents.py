"""The content of waiting messages as the loop sees it: at hand, or loaded without waiting.

Whoever takes messages up has their content, until he lets it go: there is no other cache of it than
the store's own. Loads asked for in one turn of the loop go to the store together, and every answer
comes back on the loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from broker_shim.broker.storage.inbox import Inbox
from broker_shim.errors import ENDED, StoreError
from broker_shim.store.interface import Content, ContentCalls, StoredMessage

if TYPE_CHECKING:
    from broker_shim.broker.storage.store_calls import StoreCalls

OnLoaded = Callable[[Content | StoreError], None]


class StoreContents:
    """Gets the content that a store has. On the loop's thread only."""

    def __init__(self, store: ContentCalls, inbox: Inbox, calls: StoreCalls) -> None:
        self._store, self._inbox, self._calls = store, inbox, calls
        self._asked: dict[int, list[OnLoaded]] = {}
        self._to_ask: list[int] = []

    def now(self, message_ids: Sequence[int]) -> list[Content | None]:
        """Get the content that the store has at hand, in this order; None where it has none."""
        try:
            contents = self._store.at_hand(message_ids)
        except StoreError:
            return [None] * len(message_ids)  # a load says why
        return [*map(contents.get, message_ids)]

    def load(self, message_id: int, on_loaded: OnLoaded) -> None:
        """Load a message on the store's thread; two who ask share one load.

        `on_loaded` gets it later, on this thread, or why it cannot be read.
        """
        waiting = self._asked.get(message_id)
        if waiting is not None:
            waiting.append(on_loaded)
            return
        self._asked[message_id] = [on_loaded]
        self._calls.open_count += 1
        if not self._to_ask:
            self._inbox.post(self._ask, None)
        self._to_ask.append(message_id)

    def read(self, message_id: int, offset: int, length: int) -> bytes:
        """Read a part of a message's content from the store, and wait; b"" at the end.

        Raises:
            StoreError: It cannot be read.
        """
        return self._store.read(message_id, offset, length)

    def _ask(self, _nothing: None) -> None:
        message_ids, self._to_ask = self._to_ask, []
        post, loaded = self._inbox.post, self._loaded
        try:
            self._store.prefetch(message_ids, lambda i, read: post(loaded, (i, read)))
        except StoreError as error:  # Closed
            for message_id in message_ids:
                self._loaded((message_id, error))

    def _loaded(self, answer: tuple[int, StoredMessage | StoreError]) -> None:
        message_id, read = answer
        self._calls.open_count -= 1
        if isinstance(read, ENDED):
            self._calls.on_fatal(read)
        result = (read.header, read.body) if isinstance(read, StoredMessage) else read
        for on_loaded in self._asked.pop(message_id):
            on_loaded(result)
