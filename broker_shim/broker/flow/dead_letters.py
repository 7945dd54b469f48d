"""The messages that died: counted, told of in the log, and the queues that they go to.

A message dies expired or delivered too often (`bulk_operations`), or rejected
(`delivery.rejection`). It goes to its queue's dead letters in one transaction of the store, with
why and whence in the annotations of its entry there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from broker_shim.broker.metrics import Metrics
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.completion import OnComplete
from broker_shim.store.interface import Queue
from sparkstore.core.annotations import CYCLE, EXPIRED, OVER_DELIVERED, REJECTED
from sparkstore.core.state_machine.call_values import DequeueCall

_log = logging.getLogger(__name__)

_QUIET_S = 60.0
"""Of one queue and one reason there is a line so often at most."""
_MAX_LINES = 1_000
"""Queues and reasons that are remembered for that."""
_SAYS = {
    EXPIRED: "expired",
    OVER_DELIVERED: "was delivered too often",
    REJECTED: "was rejected",
    CYCLE: "expired, and has expired on its dead-letter queue before: a cycle",
}


class DeadLetters:
    """The count of messages that died, with a line in the log: one, then how many since."""

    def __init__(
        self,
        metrics: Metrics,
        queues: Mapping[str, QueueDispatch],
        create_queue: Callable[[Queue, OnComplete], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._metrics, self._queues, self._clock = metrics, queues, clock
        self._create_queue = create_queue
        self._said: dict[tuple[str, str], tuple[float, int]] = {}

    def make_queue(self, target: str | None, on_done: OnComplete) -> None:
        """Have the queue that dead letters go to, if there is to be one."""
        if target is None or target in self._queues:
            on_done(None)
        else:
            self._create_queue(Queue(target), on_done)

    def note(self, take: DequeueCall) -> None:
        """Count messages that died, durably; how, the step that took them off their queue tells."""
        outcome, count = take.outcome or {}, len(take.message_ids)
        reason = outcome.get("reason", outcome["outcome"])
        name = f"died_{reason.replace('-', '_')}"
        setattr(self._metrics, name, getattr(self._metrics, name) + count)
        if take.queue in self._queues:
            self._queues[take.queue].dead_lettered += count
        key, now_s = (take.queue, reason), self._clock()
        said_s, unsaid = self._said.get(key, (now_s - _QUIET_S, 0))
        if now_s - said_s < _QUIET_S:
            self._said[key] = said_s, unsaid + count
            return
        if len(self._said) >= _MAX_LINES:
            self._said.clear()
        self._said[key] = now_s, count - 1
        cause = ": ".join(outcome[part] for part in ("condition", "description") if part in outcome)
        where = f"to {outcome['to']!r}" if "to" in outcome else "off the store, history has it"
        _log.info(
            "queue %r: message %d %s%s: it goes %s%s",
            take.queue,
            take.message_ids[0],
            _SAYS[reason],
            f" ({cause[:200]!a})" if cause else "",
            where,
            f"; {unsaid} more since the last line" if unsaid else "",
        )
