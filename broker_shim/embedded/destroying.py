"""Queues that are being destroyed, until the store has done it. On the loop's thread only.

Why repeated: a queue that is gone from the broker and still in the store comes back with its old
messages, at the next start or when one of its name is created. So `Unavailable`, which leaves the
outcome unknown, is met by trying again, and one of the same name is created when it is gone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker_shim.completion import OnComplete
from broker_shim.durability import TerminusDurability
from broker_shim.errors import InvalidRequest, StoreError, Unavailable
from broker_shim.store.interface import Queue

if TYPE_CHECKING:
    from broker_shim.embedded.broker import Broker

_log = logging.getLogger(__name__)


class Destroying:
    """See above; `waiting_count` is how many wait to be tried again."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._waiting: dict[str, list[Callable[[], None]]] = {}
        self.waiting_count = 0

    def begin(self, name: str, on_done: OnComplete) -> None:
        """Destroy a queue; `on_done` when that is durable, or the store has ended."""
        self._waiting[name] = []
        self._try(name, on_done)

    def when_gone(self, name: str, call: Callable[[], None]) -> None:
        """Make a call when no queue of this name is being destroyed: at once if none is."""
        if name in self._waiting:
            self._waiting[name].append(call)
        else:
            call()

    def _try(self, name: str, on_done: OnComplete) -> None:
        def done(error: StoreError | None) -> None:
            if isinstance(error, Unavailable):
                self.waiting_count += 1
                self._broker.later(self._broker.settings.probe_interval_s, again)
                return
            if isinstance(error, InvalidRequest):
                _log.info("queue %r was destroyed before: %s", name, error)
                error = None
            waiting = self._waiting.pop(name)
            on_done(error)
            for call in waiting:
                call()

        def again() -> None:
            self.waiting_count -= 1
            self._try(name, on_done)

        self._broker.calls.destroy(Queue(name, TerminusDurability.NONE), done)
