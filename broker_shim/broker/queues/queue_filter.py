"""The part of a queue's definition that limits which messages are routed to it.

A subscription's selector is in the definition of its queue: whoever publishes asks it, and with
members that is a broker which the subscriber never talked to. So is whose messages it is not to
have (`local_messages`), if it outlives its link.
"""

from __future__ import annotations

import logging

from broker_shim.broker.queues.local_messages import NoLocal
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.selectors import InvalidSelector, Selector, parse
from sparkstore.core.link_records import NO_LOCAL, SELECTOR, TEMPORARY_OF
from sparkstore.core.queue_names import shown
from sparkstore.core.state_machine.call_values import Queue

_log = logging.getLogger(__name__)


def adopt(dispatch: QueueDispatch, queue: Queue) -> None:
    """Take over what a queue's definition says of who may send to it, and whose it is."""
    dispatch.only, dispatch.owner = filter_of(queue), queue.arguments.get(TEMPORARY_OF)
    container = queue.arguments.get(NO_LOCAL)
    dispatch.no_local = None if container is None else NoLocal(container=str(container))


def is_filtered(queue: Queue) -> bool:
    """True if every broker knows by the definition what is not routed to the queue."""
    return SELECTOR in queue.arguments


def filter_of(queue: Queue) -> Selector | None:
    """The selector that a queue's definition names; None if it names none, or one that is none.

    It was compiled when its subscriber attached. One that somebody else wrote and that cannot be
    compiled is told in the log, and everything is routed: nothing is lost by a misspelling.
    """
    text = queue.arguments.get(SELECTOR)
    if text is None:
        return None
    try:
        return parse(str(text), is_kept=True)
    except InvalidSelector as reason:
        _log.error("%s of queue %s selects nothing: %s", SELECTOR, shown(queue.name), reason)
        return None
