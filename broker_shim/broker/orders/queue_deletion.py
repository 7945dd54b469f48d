"""Queues that are being destroyed, until the store has done it. On the loop's thread only.

Why repeated: a queue that is gone from the broker and still in the store comes back with its old
messages. That happens at the next start, or when a queue of its name is created. So `NotNow`,
which may leave the outcome unknown, is met by trying again (`Settlement.insist`), and one of the
same name is created when it is gone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from broker_shim.broker.flow.settlement import Settlement
from broker_shim.broker.storage.store_calls import StoreCalls
from broker_shim.completion import OnComplete
from broker_shim.durability import TerminusDurability
from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.store.interface import Queue
from sparkstore.core.queue_names import shown
from sparkstore.core.state_machine.branches import PREPARED
from sparkstore.core.state_machine.call_values import DestroyCall

_log = logging.getLogger(__name__)


class QueueDeletions:
    """Destroys queues, and says when a name is free. On the loop's thread only."""

    def __init__(self, calls: StoreCalls, settlement: Settlement) -> None:
        self._calls, self._settlement = calls, settlement
        self._waiting: dict[str, list[Callable[[], None]]] = {}

    def refuses(self, name: str, on_done: OnComplete) -> bool:
        """Refuse to destroy a queue that a branch in doubt uses: `on_done` is told; or False."""
        try:
            is_used = name in self._used_by_branches()
        except StoreError:  # it has ended: who destroys the queue is told that
            return False
        if is_used:
            text = f"queue {shown(name)} is used by a prepared branch: decide that first"
            on_done(InvalidRequest(text))
            return True
        return False

    def _used_by_branches(self) -> set[str]:
        store = self._calls.branches
        if store is None:
            return set()
        entries = [store.branch_entries(e.xid) for e in store.prepared() if e.state == PREPARED]
        enqueued = {place[0] for branch in entries for place in branch.enqueued}
        return enqueued | {queue for branch in entries for queue, _message_id in branch.taken}

    def begin(
        self, name: str, on_done: OnComplete, before: Callable[[OnComplete], None] | None = None
    ) -> None:
        """Destroy a queue; `on_done` when that is durable, or the store has ended.

        Args:
            name: Of the queue.
            on_done: Called with how it ended.
            before: What is to be done first; told when it is, whatever came of it.
        """

        def destroy(done: OnComplete) -> None:
            queue = Queue(name, TerminusDurability.NONE)
            self._calls.make(DestroyCall(queue), partial(_answered, name, done))

        def gone(error: StoreError | None) -> None:
            waiting = self._waiting.pop(name)
            on_done(error)
            for call in waiting:
                call()

        self._waiting[name] = []

        def ready(_error: StoreError | None) -> None:
            self._settlement.insist(destroy, gone, ("destroy of queue %r", name))

        if before is None:
            ready(None)
        else:
            before(ready)

    def __contains__(self, name: str) -> bool:
        """True while a queue of this name is being destroyed."""
        return name in self._waiting

    def when_gone(self, name: str, call: Callable[[], None]) -> None:
        """Make a call when no queue of this name is being destroyed: at once if none is."""
        if name in self:
            self._waiting[name].append(call)
        else:
            call()


def _answered(name: str, on_done: OnComplete, error: StoreError | None) -> None:
    if isinstance(error, InvalidRequest):
        _log.info("queue %r was destroyed before: %s", name, error)
        error = None
    on_done(error)
