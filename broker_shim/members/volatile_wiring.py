"""Queues and exchanges that no restart survives, when the service has restarted and members not.

Messages on these queues are gone with the service, as their durability says. But clients that
consume from them, or publish there, are connected to a member, and are to notice nothing but time.
So a member makes the queues again before it subscribes anew, each by the definition that it has of
it, with their bindings. Several members may; what is there already is left as it is.

A queue that is a link's own is made again by the member that the link is attached at, and by nobody
else: it ends with that link. What comes between the restart and the new queue is not routed there,
as if it had come before the restart. Nobody was told that it was on such a queue for good.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.completion import after
from broker_shim.durability import TerminusDurability
from broker_shim.errors import StoreError
from broker_shim.store.interface import Exchange, Queue
from sparkstore.core.link_records import ENDS_WITH_LINK
from sparkstore.core.queue_names import shown
from sparkstore.core.state_machine.call_values import BindCall, CreateCall, StoreCall

_log = logging.getLogger(__name__)


def make_again(broker: ServedQueues, then: Callable[[], None]) -> None:
    """Have the store make what it lost of what is in use here; `then` when all of it is made.

    On the loop's thread only.
    """
    definitions, router = broker.definitions, broker.router
    exchanges = {name for name, exchange in router.definitions.items() if _is_lost(exchange)}
    lost = {name for name, queue in definitions.items() if _is_lost(queue)}
    queues = {name for name in lost if _is_ours(broker, definitions[name])}
    calls: list[tuple[str, StoreCall]] = [
        *((name, CreateCall(router.definitions[name])) for name in exchanges),
        *((name, CreateCall(definitions[name])) for name in queues),
    ]
    calls += [
        (key.queue, BindCall(key, router.arguments_of(key)))
        for key in router.bindings()
        if key.queue in queues or (key.exchange in exchanges and key.queue not in lost)
    ]
    if not calls:
        then()
        return
    done = after(len(calls), lambda _none: then())

    def made(name: str, error: StoreError | None) -> None:
        if error is not None:
            _log.warning("%s is not what it was: %s", shown(name), error)
        done(None)

    for name, call in calls:
        broker.calls.make(call, partial(made, name))
    text = "the service has restarted: %d exchanges and %d queues of no durability are made again"
    _log.info(text, len(exchanges), len(queues))


def _is_lost(wiring: Queue | Exchange) -> bool:
    return wiring.durability is TerminusDurability.NONE


def _is_ours(broker: ServedQueues, queue: Queue) -> bool:
    is_own = any(owner.own_link(queue.name) is not None for owner in broker.queue_owners)
    return is_own or not queue.arguments.get(ENDS_WITH_LINK)
