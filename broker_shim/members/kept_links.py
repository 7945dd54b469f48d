"""Links that members keep, as the broker that decides finds them in the store.

An administrator meets them at a service without AMQP: a broker that listens knows its links itself;
one that only decides looks at what the store has. And a broker beside the service takes them over.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

from broker_shim.broker.virtual_host import Broker
from broker_shim.completion import OnComplete
from broker_shim.errors import StoreError
from broker_shim.links.kept_link import KeptLink
from broker_shim.store.delta import DeltaMessageStore
from sparkstore.core.link_records import link_key
from sparkstore.core.state_machine.definitions import states_of
from sparkstore.operations.administration import OwnLink
from sparkstore.operations.root_at_rest import StateFacts, own_link_text


class KeptLinks:
    """A `QueueOwner` for the links that the store keeps. On the loop's thread only."""

    def __init__(
        self, store: DeltaMessageStore, broker: Broker, moved: Callable[[str], None]
    ) -> None:
        """Begin; `moved` is told of each link that is no member's any more."""
        self._store, self._broker, self._moved = store, broker, moved

    def own_link(self, queue: str) -> OwnLink | None:
        """Find in the store the link whose own queue this is. See `QueueOwner.own_link`."""
        with self._store.look() as machine:
            text = own_link_text(machine.state, queue)
            link = StateFacts(machine.state).link_of(queue)
            if text is None or link is None:
                return None
            is_attached = machine.state.links[text].detached_at is None
            return link._replace(is_attached=is_attached)

    def end_own_link(self, queue: str, on_done: OnComplete) -> bool:
        """Close the link whose own queue this is, in the store. See `QueueOwner.end_own_link`."""
        with self._store.look() as machine:
            text = own_link_text(machine.state, queue)
        if text is None:
            return False
        self._moved(text)
        ended = partial(self._ended, queue, on_done)
        self._broker.calls.call(ended, self._store.detach, link_key(text), closed=True)
        return True

    def queue_gone(self, queue: str) -> None:
        """Do nothing: what links hold is not known to the deciding broker.

        See `QueueOwner.queue_gone`.
        """

    def _ended(self, queue: str, on_done: OnComplete, error: StoreError | None) -> None:
        if error is None:
            self._broker.destroy_queue(queue, on_done)
        else:
            on_done(error)


def take_over(store: DeltaMessageStore, broker: Broker, text: str) -> KeptLink:
    """Read a kept link from the store, and let this broker hold what the link holds."""
    with store.look() as machine:
        link = machine.state.links.get(text)
        detail = None if link is None else json.loads(link.detail)
        unsettled = {} if link is None else states_of(link)
        held = [
            (name, message_id)
            for name, queue in machine.state.queues.items()
            for message_id, entry in queue.entries.marked()
            if link is not None and entry.acquired_by == text
        ]
    for name, message_id in held:
        broker.queues[name].held_here(message_id)
    return KeptLink(detail, unsettled, held)
