"""Loads messages on a thread of its own, in the order asked, and tells each of them.

Why nobody waits in vain: what was asked is in the line, or in the hand of the thread, until it was
told; `close` lets the thread tell `Closed` to all that is left, and only then ends it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue

from broker_shim.errors import Closed, StoreError
from sparkstore.core.state_machine.values import StoredMessage

_log = logging.getLogger(__name__)

Loaded = StoredMessage | StoreError
OnLoaded = Callable[[int, Loaded], None]
"""Gets a message id, and the message or why it cannot be had."""
Asked = tuple[Sequence[int], OnLoaded]


class Prefetcher:
    """See above. Any thread may call it; the thread starts with the first call.

    Args:
        load_all: Messages by id, in that order, one for each; it raises nothing.
    """

    def __init__(self, load_all: Callable[[Sequence[int]], Iterator[Loaded]]) -> None:
        self._load_all = load_all
        self._guard = threading.Lock()
        self._line: SimpleQueue[Asked | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def ask(self, message_ids: Sequence[int], on_loaded: OnLoaded) -> None:
        """Load these after all that was asked before.

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


def _tell(on_loaded: OnLoaded, message_id: int, loaded: Loaded) -> None:
    try:
        on_loaded(message_id, loaded)
    except Exception:  # noqa: BLE001 - a caller's bug must not stop everybody's loads
        _log.exception("a callback of prefetch failed")


def _closed() -> Closed:
    return Closed("the store is closed: open a new one")
