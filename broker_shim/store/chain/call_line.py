"""Calls in their order: each at once, but for those that may wait, and what comes after them."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

_log = logging.getLogger(__name__)


class CallLine:
    """Makes one call after the other; one thread at a time brings them.

    A call that need not wait is made by who brings it, unless another is before it. One that may
    wait for storage is made on a thread of its own. So who brings them never waits, which may be
    the very thread that the storage needs: that of the first store's log, on which completions
    fire. Why none overtakes another: a call stays in the line until it was made, and while the line
    is not empty, nobody but its thread makes any.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._guard = threading.Lock()
        self._line: deque[Callable[[], None]] = deque()
        self._thread: threading.Thread | None = None

    def take(self, call: Callable[[], None], *, may_wait: bool) -> None:
        """Make a call in its turn, which raises nothing; `may_wait`: not on this thread."""
        with self._guard:
            is_next = not self._line
            if may_wait or not is_next:
                self._line.append(call)
                if is_next:
                    self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                    self._thread.start()
                return
        call()

    def close(self) -> None:
        """Wait until all that was brought is made; nothing is brought any more."""
        with self._guard:
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while True:
            try:
                self._line[0]()
            except Exception:  # noqa: BLE001 - a bug in one call must not keep the others
                _log.exception("a call on the thread %s failed", self._name)
            with self._guard:
                self._line.popleft()
                if not self._line:
                    return
