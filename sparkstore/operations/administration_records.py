"""Orders over the fold of a root that nobody serves: what is there, and the records. Pure.

What `broker_shim.store` decides for a running broker is decided here for a root at rest, by the
same `administration.decide`; a contract test holds both equal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping

from sparkstore.core import records
from sparkstore.core.fold import State
from sparkstore.core.link_records import detached, link_key
from sparkstore.core.queue_arguments import terms_of
from sparkstore.core.queue_names import shown
from sparkstore.core.records import ExchangeBindingKey, Record
from sparkstore.errors import InvalidRequest
from sparkstore.operations.administration import AdminAction, OrderDecision, OwnLink
from sparkstore.operations.queue_alteration import QueueUsage

_KEPT = 2
"""Durability of what is made here."""


class StateFacts:
    """See `AdministrationFacts`: nobody is attached to anything."""

    def __init__(self, state: State) -> None:
        self._state = state

    @property
    def queues(self) -> Collection[str]:
        """Names of all queues."""
        return self._state.queues.keys()

    def detail(self, queue: str) -> str | None:
        """Definition of a queue; None: there is none."""
        there = self._state.queues.get(queue)
        return None if there is None else there.detail

    def standing(self, queue: str) -> QueueUsage:
        """What a queue has."""
        return QueueUsage(len(self._state.queues[queue].entries))

    def link_of(self, queue: str) -> OwnLink | None:
        """Whose own queue it is; None: nobody's."""
        text = link_of(self._state, queue)
        return None if text is None else OwnLink(link_name(text), is_attached=False)

    def senders_of_dead_letters(self, queue: str) -> list[str]:
        """Other queues that have it as their dead-letter queue."""
        return [
            name
            for name, other in self._state.queues.items()
            if name != queue and terms_of(other.detail).arguments.dead_letter_queue == queue
        ]

    def exchange_type(self, exchange: str) -> str | None:
        """Type of an exchange; None: there is none."""
        detail = self._state.exchanges.get(exchange)
        return None if detail is None else str(json.loads(detail).get("type", ""))

    def bindings(self) -> Collection[ExchangeBindingKey]:
        """All bindings."""
        return self._state.bindings.keys()


def link_of(state: State, queue: str) -> str | None:
    """The link whose own queue this is, as records name it; None: there is none."""
    for text, link in state.links.items():
        if json.loads(link.detail).get("queue") == queue:
            return text
    return None


def link_name(text: str) -> str:
    """A link for a person."""
    key = link_key(text)
    return f"link {shown(key.name)} of {shown(key.remote_container_id)}"


def records_of(decided: OrderDecision, state: State, now_us: int) -> list[Record]:
    """The records of a decided order; they become true together.

    Raises:
        InvalidRequest: It makes a queue that would not outlive this.
    """
    return _RECORDS[decided.order.act](decided, state, now_us) if decided.is_change else []


def _queue_created(decided: OrderDecision, _state: State, now_us: int) -> list[Record]:
    order = decided.order
    if not order.durability:
        message = f"queue {shown(order.queue)} is to end with its broker, and none runs: start one,"
        raise InvalidRequest(f"{message} or say another durability")
    return [records.queue_created(now_us, order.queue, decided.detail)]


def _queue_altered(decided: OrderDecision, _state: State, now_us: int) -> list[Record]:
    return [records.queue_altered(now_us, decided.order.queue, decided.detail)]


def _queue_destroyed(decided: OrderDecision, state: State, now_us: int) -> list[Record]:
    queue = decided.order.queue
    link = link_of(state, queue)
    ended = [] if link is None else [detached(now_us, link, closed=True)]
    unbound = [records.unbound(now_us, key) for key in state.bindings if key.queue == queue]
    return [*ended, *unbound, records.queue_destroyed(now_us, queue)]


def _exchange_created(decided: OrderDecision, _state: State, now_us: int) -> list[Record]:
    content = {"arguments": {}, "durability": _KEPT, "type": decided.order.type}
    detail = json.dumps(content, sort_keys=True)
    return [records.exchange_created(now_us, decided.order.exchange, detail)]


def _exchange_destroyed(decided: OrderDecision, state: State, now_us: int) -> list[Record]:
    exchange = decided.order.exchange
    unbound = [records.unbound(now_us, key) for key in state.bindings if key.exchange == exchange]
    return [*unbound, records.exchange_destroyed(now_us, exchange)]


def _bound(decided: OrderDecision, _state: State, now_us: int) -> list[Record]:
    return [records.bound(now_us, _key(decided), json.dumps({"arguments": {}}))]


def _unbound(decided: OrderDecision, _state: State, now_us: int) -> list[Record]:
    return [records.unbound(now_us, _key(decided))]


def _key(decided: OrderDecision) -> ExchangeBindingKey:
    order = decided.order
    return ExchangeBindingKey(order.exchange, order.queue, order.key)


_RECORDS: Mapping[AdminAction, Callable[[OrderDecision, State, int], list[Record]]] = {
    AdminAction.CREATE_QUEUE: _queue_created,
    AdminAction.ALTER_QUEUE: _queue_altered,
    AdminAction.DELETE_QUEUE: _queue_destroyed,
    AdminAction.CREATE_EXCHANGE: _exchange_created,
    AdminAction.DELETE_EXCHANGE: _exchange_destroyed,
    AdminAction.ADD_BINDING: _bound,
    AdminAction.REMOVE_BINDING: _unbound,
}
