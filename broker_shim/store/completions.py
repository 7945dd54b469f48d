"""Completions of one store, fired in order on a thread of their own."""

from __future__ import annotations

import threading
from queue import SimpleQueue

from broker_shim.completion import OnComplete
from broker_shim.errors import StoreError
from sparkstore.log.completions import fire_once


class Completions:
    """Fires completions in order on a thread of its own, so that they may call the store."""

    def __init__(self) -> None:
        self._turns: SimpleQueue[tuple[OnComplete, StoreError | None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="completions", daemon=True)
        self._thread.start()

    def put(self, on_complete: OnComplete, error: StoreError | None) -> None:
        """Fire one after those before it."""
        self._turns.put((on_complete, error))

    def close(self) -> None:
        """Fire what is open, then stop."""
        self._turns.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (turn := self._turns.get()) is not None:
            fire_once(*turn)
