"""Queues that no restart survives, when the service has restarted and its members have not.

Their messages are gone with the service, as their durability says. But who consumes from them is
connected to a member, and is to notice nothing but time: so a member makes them again before it
subscribes anew, each by the definition that it has of it, with its
bindings. Several members may; what is there already is left as it is.

A queue that is a link's own is made again by the member that the link is attached at, and by nobody
else: it ends with that link. What comes between the restart and the new queue is not routed there,
as if it had come before the restart; nobody was told that it was on such a queue for good.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from broker_shim.broker.virtual_host import Broker
from broker_shim.completion import OnComplete
from broker_shim.durability import TerminusDurability
from broker_shim.errors import StoreError
from broker_shim.store.interface import Queue
from sparkstore.core.link_records import ENDS_WITH_LINK
from sparkstore.core.queue_names import shown

_log = logging.getLogger(__name__)


def make_again(broker: Broker, then: Callable[[], None]) -> None:
    """Have the store make what it lost of what is in use here; `then` when all of it is made.

    On the loop's thread only.
    """
    lost = {name for name, queue in broker.definitions.items() if _is_to_make(broker, queue)}
    calls: list[tuple[str, Callable[[OnComplete], None]]] = [
        (name, partial(broker.calls.create, broker.definitions[name])) for name in sorted(lost)
    ]
    for key in sorted(broker.router.bindings()):
        if key.queue in lost:
            bind = partial(broker.calls.bind, key, arguments=broker.router.arguments_of(key))
            calls.append((key.queue, bind))
    if not calls:
        then()
        return
    left = len(calls)

    def made(queue: str, error: StoreError | None) -> None:
        nonlocal left
        left -= 1
        if error is not None:
            _log.warning("queue %s is not what it was: %s", shown(queue), error)
        if not left:
            then()

    for name, call in calls:
        call(partial(made, name))
    _log.info("the service has restarted: %d queues of no durability are made again", len(lost))


def _is_to_make(broker: Broker, queue: Queue) -> bool:
    if queue.durability is not TerminusDurability.NONE:
        return False
    is_own = any(owner.own_link(queue.name) is not None for owner in broker.queue_owners)
    return is_own or not queue.arguments.get(ENDS_WITH_LINK)
