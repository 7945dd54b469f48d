"""The fate of messages that were taken from their queue for a consumer, and are not sent.

It is decided here for every protocol, alone and for the consumers of members:

    lost       the store refused it: the queue is as the store says
    not taken  it was never acquired: it waits again, unless somebody else has it meanwhile
    expired    it is counted, and waits again: from the queue it goes as the queue says
    damaged    its content can never be read: it is left held, and the log says so, once

What was acquired and is not sent is given back by `Settlement`.
"""

from __future__ import annotations

import logging
from functools import partial

from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.broker.flow.settlement import Settlement
from broker_shim.broker.queues.queue import QueueDispatch

_log = logging.getLogger(__name__)

_CLAIMED_S = 0.1


class Undelivered:
    """The decisions about messages that are not sent. On the loop's thread only."""

    def __init__(self, served: ServedQueues, settlement: Settlement) -> None:
        self._served, self._settlement = served, settlement

    def lost(self, queue: QueueDispatch, message_id: int) -> None:
        """Let a message be as the store has it, which refused to give it to the consumer.

        Another member was faster, which is ordinary: that costs this look. What a transaction has a
        claim on waits again after a while, so that nobody asks for it all the time.
        """
        if not self._is_held(queue, message_id):
            return  # whoever took it was observed before
        entry = self._served.calls.entry(queue.name, message_id)
        if entry is None:
            queue.removed((message_id,))
        elif entry.acquired_by is not None:
            queue.held_elsewhere((message_id,))
        else:
            self._served.later(_CLAIMED_S, partial(self.not_taken, queue, message_id))

    def not_taken(self, queue: QueueDispatch, message_id: int) -> None:
        """Let a message wait again that was never acquired, unless somebody else has it."""
        if not self._is_held(queue, message_id):
            return
        entry = self._served.calls.entry(queue.name, message_id)
        if entry is None or entry.acquired_by is not None:
            self.lost(queue, message_id)
        else:
            self._settlement.released((message_id,), queue, failed=False)

    def expired(self, count: int = 1) -> None:
        """Count messages that are not sent because they are too old."""
        self._served.metrics.expired += count

    def damaged(self, queue: QueueDispatch, message_id: int, error: Exception) -> None:
        """Log that a message is left held, as its content can never be read or written."""
        text = "message %d of %r cannot be read, it is left held: %s"
        _log.error(text, message_id, queue.name, error)

    def _is_held(self, queue: QueueDispatch, message_id: int) -> bool:
        """True if a message is still on its queue, and out of dispatch."""
        is_there = self._served.serves(queue) and message_id in queue
        return is_there and not queue.waits(message_id)
