"""Questions about queues, exchanges and bindings, which change nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.broker.orders.administration import Administration, OnUsage
from broker_shim.broker.storage.loop import wall_us
from broker_shim.store.interface import ExchangeBindingKey, Queue
from sparkstore.core.entries import Entries
from sparkstore.core.queue_arguments import own_arguments
from sparkstore.queue_columns import QueueFacts, Road, row_of


class BoundAnswer(NamedTuple):
    """The parts of a question about bindings that are not so; none: there is a binding.

    What was not asked about is not told as wrong.

    Attributes:
        exchange_not_found: There is no such exchange.
        queue_not_found: There is no such queue.
        queue_not_matched: The queue is not bound to the exchange.
        key_not_matched: Nothing is bound there by this key; of a queue that is bound there, if one
            is named.
        arguments_not_matched: Nothing is bound there with these arguments; of what is bound by the
            queue and the key, as far as these are.
    """

    exchange_not_found: bool = False
    queue_not_found: bool = False
    queue_not_matched: bool = False
    key_not_matched: bool = False
    arguments_not_matched: bool = False


class Queries:
    """Answers for clients of every protocol. On the loop's thread only."""

    def __init__(self, served: ServedQueues, administration: Administration) -> None:
        self._served, self._administration = served, administration

    def queue(self, name: str) -> Queue | None:
        """Describe a queue by its whole name, with its own arguments; None: there is none."""
        queue = self._served.definitions.get(name)
        return None if queue is None else replace(queue, arguments=own_arguments(queue.arguments))

    def usage(self, name: str, on_usage: OnUsage) -> None:
        """Tell the figures of a queue, as `$management` has them, of all brokers.

        Browsers are no consumers. At a member the service knows the figures, and is asked.

        Args:
            name: Its whole name.
            on_usage: Called at once, or at a member when the service has answered.
        """
        decider = self._administration.decider
        if decider is not None:
            decider.usage(name, on_usage)
            return
        is_served = name in self._served.queues
        on_usage(None, row_of(Road.MANAGEMENT, self.facts(name)) if is_served else {})

    def facts(self, name: str, now_us: int | None = None) -> QueueFacts:
        """Return what the row of a queue that is served is made of, now unless at a time.

        What the store has on it counts if it is in this process, as it comes and goes.
        """
        served, entries = self._served, self._served.calls.entries(name)
        definition = served.definitions.get(name) or Queue(name)
        return QueueFacts(
            name,
            entries if isinstance(entries, Entries) else Entries(),
            wall_us() if now_us is None else now_us,
            definition.arguments,
            definition.durability,
            served.queues[name],
        )

    def bound(
        self,
        exchange: str,
        queue: str | None = None,
        key: str | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> BoundAnswer:
        """Whether there is a binding; what is None was not asked about.

        Args:
            exchange: Name of the exchange.
            queue: Name of a queue.
            key: A binding key.
            arguments: All arguments of a binding.
        """
        router = self._served.router
        no_queue = queue is not None and queue not in self._served.queues
        if exchange not in router:
            return BoundAnswer(exchange_not_found=True, queue_not_found=no_queue)
        keys = [bound for bound in router.bindings() if bound.exchange == exchange]
        of_queue = [bound for bound in keys if queue in {None, bound.queue}]
        by_key = [bound for bound in of_queue or keys if key in {None, bound.binding_key}]
        like_these = by_key or of_queue or keys
        return BoundAnswer(
            queue_not_found=no_queue,
            queue_not_matched=queue is not None and not no_queue and not of_queue,
            key_not_matched=key is not None and not by_key,
            arguments_not_matched=arguments is not None and not self._has(like_these, arguments),
        )

    def _has(self, keys: list[ExchangeBindingKey], arguments: Mapping[str, Any]) -> bool:
        router = self._served.router
        return any(router.arguments_of(bound) == arguments for bound in keys)
