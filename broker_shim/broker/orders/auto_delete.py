"""Queues that go with their last consumer, and exchanges with their last binding (`auto_delete`).

A queue that never had a consumer stays. So that a broker that is killed leaves nothing behind, the
store is told when such a queue has its first consumer, or its claimant (`claims`). A start ends all
that were in use, as their consumers ended with the broker. But a queue that the settings name is
made so at each start, and stays.

A consumer is a link that is attached, whatever becomes of its terminus when it is not. A queue that
is a link's own ends with that link, and not by this.

Consumers of another broker are out of sight while the connection to it is lost, or after a restart
of the one that decides. Until that broker has said what it consumes from, or is given up, their
queues stay (`away`, `back`). So a queue goes when its last consumer does, and not before.

An exchange that never had a binding stays. It is deleted in the turn in which the binding goes, so
whoever binds to it after that is told that there is none. The alternate exchange of something is
deleted by nobody, so it stays, too. Of several brokers on one store the one that decides deletes
it. A kill between the two leaves the exchange, until the next time that its last binding goes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable, Iterable

from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.broker.orders.administration import Administration
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.errors import StoreError
from sparkstore.core.state_machine.call_values import ConfigureCall
from sparkstore.operations.administration import AdminAction, Order

_log = logging.getLogger(__name__)

CATEGORY = "auto-delete"
"""Of the objects that the store keeps: by the name of a queue, that it has had a consumer."""


class AutoDeletion:
    """Deletes queues and exchanges that nobody uses any more. On the loop's thread only."""

    def __init__(
        self,
        served: ServedQueues,
        administration: Administration,
        is_claimed: Callable[[str], bool],
    ) -> None:
        """Begin with no queue in use.

        Args:
            served: The queues, some of which delete themselves.
            administration: Knows whether another broker decides, which alone knows all consumers.
            is_claimed: Whether somebody has a queue to itself, so that it stays.
        """
        self._served, self._administration = served, administration
        self._is_claimed = is_claimed
        served.router.on_unused = self._delete_exchange
        self._used: set[str] = set()
        self._awaited: dict[Hashable, set[str]] = {}

    def recovered(
        self, configured: Iterable[tuple[str, str]], absent: Collection[Hashable] = ()
    ) -> None:
        """Look, after a start, at the queues that had consumers when the last run ended.

        Args:
            configured: Category and key of the objects that the store keeps; what they were then.
            absent: Brokers that may live on, and whose the consumers may be: see `away`.
        """
        names = [name for category, name in configured if category == CATEGORY]
        kept = {queue.name for queue in self._served.settings.queues}
        for name in names:
            queue = self._served.queues.get(name)
            self._used.add(name)
            deletes_itself = queue is not None and queue.arguments.auto_delete
            if not deletes_itself or name in kept or self._is_own(name):
                self._forget(name)
            elif queue is not None and not absent:
                self._delete(queue)
        for who in absent:
            self.away(who, names)

    def away(self, who: Hashable, names: Iterable[str]) -> None:
        """Keep queues until `back`: a broker that is away may have consumers of them."""
        self._awaited.setdefault(who, set()).update(names)

    def back(self, who: Hashable) -> None:
        """Look at the queues of one who has said all that it consumes from, or is given up."""
        for name in self._awaited.pop(who, ()):
            if (queue := self._served.queues.get(name)) is not None:
                self.unused(queue)

    def used(self, queue: QueueDispatch) -> None:
        """Note that a queue has a consumer, or a claimant."""
        if queue.arguments.auto_delete and queue.name not in self._used:
            self._used.add(queue.name)
            self._served.calls.make(ConfigureCall(CATEGORY, queue.name, {"used": True}), _note)

    def unused(self, queue: QueueDispatch) -> None:
        """Look whether a queue has lost its last user."""
        if queue.arguments.auto_delete and queue.name in self._used:
            self._served.later(0.0, lambda: self._look(queue))

    def gone(self, name: str) -> None:
        """Forget a queue that was destroyed: one of its name is another."""
        if name in self._used:
            self._forget(name)
        for names in self._awaited.values():
            names.discard(name)

    def _look(self, queue: QueueDispatch) -> None:
        is_there = self._served.serves(queue)
        is_used = queue.consumer_count > 0 or self._is_claimed(queue.name)
        if not is_there or is_used or self._served.is_stopping or not queue.arguments.auto_delete:
            return
        if not self._is_own(queue.name) and not self._is_awaited(queue.name):
            self._delete(queue)

    def _is_awaited(self, name: str) -> bool:
        return any(name in names for names in self._awaited.values())

    def _delete(self, queue: QueueDispatch) -> None:
        name, decider = queue.name, self._administration.decider
        _log.info("queue %r is deleted: nobody uses it any more", name)
        if decider is None:
            self._served.destroy_queue(name, _note)
            return

        def report(error: StoreError | None, _detail: object) -> None:
            if error is None:
                self.gone(name)
            else:
                _log.info("queue %r stays: %s", name, error)

        unused = Order(AdminAction.DELETE_QUEUE, name, force=True, if_unused=True)
        decider.delete(unused, report)

    def _delete_exchange(self, exchange: str) -> None:
        """Delete an exchange whose last binding is gone, by a queue's end or not."""
        if self._administration.decider is not None:
            return

        def report(error: StoreError | None, _answer: object) -> None:
            if error is None:
                _log.info("exchange %r is deleted: nothing is bound to it any more", exchange)
            else:
                _log.info("exchange %r stays: %s", exchange, error)

        order = Order(AdminAction.DELETE_EXCHANGE, exchange=exchange, if_unused=True)
        self._administration.order(order, report)

    def _is_own(self, name: str) -> bool:
        return any(owner.own_link(name) is not None for owner in self._served.queue_owners)

    def _forget(self, name: str) -> None:
        self._used.discard(name)
        self._served.calls.make(ConfigureCall(CATEGORY, name, None), _note)


def _note(error: StoreError | None) -> None:
    if error is not None:
        _log.warning("an auto-delete queue: %s", error)
