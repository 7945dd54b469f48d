"""What a message store should do, in plain dicts: the oracle of the state machine.

Independent of `sparkstore.core.fold` and of the state machine on purpose: it knows no records, no
positions and no steps, only what the interface says. A call that the store should refuse raises
here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from broker_shim.durability import TerminusDurability
from broker_shim.errors import InvalidRequest, NotAcquired
from broker_shim.store.interface import ExchangeBindingKey
from tests.support.histories.model_links import ModelLinks

CONFIGURATION, UNSETTLED_STATE = 1, 2
Place = tuple[str, int]
"""Queue and message id."""


@dataclass
class ModelMessage:
    """A message that the store was given."""

    body: bytes
    durable: bool
    is_staged: bool = False
    was_enqueued: bool = False


@dataclass
class ModelEntry:
    """A message on a queue; `told` is what stands in its annotations, 0: it has none."""

    holder: str | None = None
    failed: int = 0
    told: int = 0


@dataclass(eq=False)
class ModelTransaction:
    """An open transaction: entries as it sees them (None: it took them), what it adds, or tried to.

    Two that did the same are two all the same.
    """

    sees: dict[Place, ModelEntry | None] = field(default_factory=dict)
    adds: list[tuple[Place, int]] = field(default_factory=list)
    tried: list[int] = field(default_factory=list)
    lives: dict[str, int] = field(default_factory=dict)
    deliveries: list[Callable[[], None]] = field(default_factory=list)
    is_spoiled: bool = False


class Model:
    """The state of a store of one tier."""

    def __init__(
        self, tier: TerminusDurability, link_tier: TerminusDurability | None = None
    ) -> None:
        self.tier = tier
        self.links = ModelLinks(tier if link_tier is None else link_tier)
        self.queues: dict[str, int] = {}
        self.lives: dict[str, int] = {}
        self.altered: dict[str, int] = {}
        self.exchanges: dict[str, int] = {}
        self.bindings: dict[ExchangeBindingKey, int] = {}
        self.entries: dict[str, dict[int, ModelEntry]] = {}
        self.messages: dict[int, ModelMessage] = {}
        self.transactions: list[ModelTransaction] = []

    def create(self, what: dict[str, int], name: str, durability: int) -> None:
        if what.setdefault(name, durability) != durability:
            raise InvalidRequest
        if what is self.queues and name in self.altered:
            raise InvalidRequest
        if what is self.queues and name not in self.entries:
            self.entries[name] = {}
            self.lives[name] = self.lives.get(name, 0) + 1

    def alter(self, name: str, durability: int, n: int) -> None:
        """A queue has the argument n from now on, none if n is 0."""
        if self.queues.get(name) != durability:
            raise InvalidRequest
        self.altered.pop(name, None)
        if n:
            self.altered[name] = n

    def destroy(self, what: dict[str, int], name: str) -> None:
        if name not in what:
            raise InvalidRequest
        del what[name]
        for key in [*self.bindings]:
            if name == (key.queue if what is self.queues else key.exchange):
                del self.bindings[key]
        if what is self.queues:
            self.altered.pop(name, None)
            del self.entries[name]
            for transaction in self.transactions:
                for place in [place for place in transaction.sees if place[0] == name]:
                    del transaction.sees[place]

    def bind(self, key: ExchangeBindingKey, arguments: int) -> None:
        if key.queue not in self.queues or key.exchange not in self.exchanges:
            raise InvalidRequest
        if self.bindings.setdefault(key, arguments) != arguments:
            raise InvalidRequest

    def unbind(self, key: ExchangeBindingKey) -> None:
        if self.bindings.pop(key, None) is None:
            raise InvalidRequest

    def is_on_a_queue(self, message_id: int) -> bool:
        return any(message_id in entries for entries in self.entries.values())

    def enqueue(self, place: Place, told: int, transaction: ModelTransaction | None) -> None:
        if transaction is None:
            self._check_enqueue(place)
            self._put(place, told)
            return
        transaction.tried.append(place[1])
        with_spoiling(transaction, lambda: self._check_enqueue(place, transaction))
        self._uses(transaction, place[0])
        transaction.adds.append((place, told))

    def _check_enqueue(self, place: Place, transaction: ModelTransaction | None = None) -> None:
        """What a transaction took it may put back, at the end of the queue."""
        queue, message_id = place
        message = self.messages[message_id]
        is_taken = transaction is not None and transaction.sees.get(place, ModelEntry()) is None
        if queue not in self.queues or (message_id in self.entries[queue] and not is_taken):
            raise InvalidRequest
        if message.was_enqueued and not self.is_on_a_queue(message_id):
            raise InvalidRequest
        keeps = min(self.queues[queue], self.tier) >= UNSETTLED_STATE
        is_logged = message.durable and self.tier >= UNSETTLED_STATE
        if message.is_staged and is_logged and not keeps and not self.is_on_a_queue(message_id):
            raise InvalidRequest

    def _put(self, place: Place, told: int) -> None:
        self.messages[place[1]].was_enqueued = True
        self.entries[place[0]][place[1]] = ModelEntry(told=told)

    def take(self, place: Place, holder: str | None, transaction: ModelTransaction | None) -> None:
        """A dequeue."""

        def decide() -> None:
            entry = self._seen(place, transaction)
            if entry.holder not in {None, holder}:
                raise NotAcquired
            self._change(place, None, transaction)

        with_spoiling(transaction, decide)

    def acquire(self, place: Place, holder: str, transaction: ModelTransaction | None) -> None:
        def decide() -> None:
            entry = self._seen(place, transaction)
            if entry.holder is not None:
                raise NotAcquired
            self._change(place, ModelEntry(holder, entry.failed, entry.told), transaction)

        with_spoiling(transaction, decide)

    def release(
        self,
        place: Place,
        holder: str,
        failed: bool,
        told: int,
        transaction: ModelTransaction | None,
    ) -> None:
        """With nothing told its annotations stay."""

        def decide() -> None:
            entry = self._seen(place, transaction)
            if entry.holder is None:
                raise InvalidRequest
            if entry.holder != holder:
                raise NotAcquired
            left = ModelEntry(None, entry.failed + failed, told or entry.told)
            self._change(place, left, transaction)

        with_spoiling(transaction, decide)

    def _seen(self, place: Place, transaction: ModelTransaction | None) -> ModelEntry:
        queue, message_id = place
        if queue not in self.queues or message_id not in self.entries[queue]:
            raise InvalidRequest
        if transaction is not None and place in transaction.sees:
            seen = transaction.sees[place]
            if seen is None:
                raise InvalidRequest
            return seen
        if any(place in other.sees for other in self.transactions):
            raise NotAcquired
        return self.entries[queue][message_id]

    def _change(
        self, place: Place, entry: ModelEntry | None, transaction: ModelTransaction | None
    ) -> None:
        if transaction is not None:
            self._uses(transaction, place[0])
            transaction.sees[place] = entry
        elif entry is None:
            del self.entries[place[0]][place[1]]
        else:
            self.entries[place[0]][place[1]] = entry

    def _uses(self, transaction: ModelTransaction, queue: str) -> None:
        transaction.lives.setdefault(queue, self.lives[queue])

    def commit(self, transaction: ModelTransaction) -> None:
        """New messages of a transaction that is refused are used up."""
        self.transactions.remove(transaction)
        try:
            self._commit(transaction)
        except InvalidRequest:
            self._use_up(transaction)
            raise

    def _use_up(self, transaction: ModelTransaction) -> None:
        for message_id in transaction.tried:
            self.messages[message_id].was_enqueued = True

    def _commit(self, transaction: ModelTransaction) -> None:
        if transaction.is_spoiled or len(dict(transaction.adds)) < len(transaction.adds):
            raise InvalidRequest
        for queue, life in transaction.lives.items():
            if queue not in self.queues or self.lives[queue] != life:
                raise InvalidRequest
        for place, _told in transaction.adds:
            self._check_enqueue(place, transaction)
        for place, entry in transaction.sees.items():
            self._change(place, entry, None)
        for place, told in transaction.adds:
            self._put(place, told)
        for change in transaction.deliveries:
            change()

    def abort(self, transaction: ModelTransaction) -> None:
        self.transactions.remove(transaction)
        if transaction.is_spoiled:
            self._use_up(transaction)

    def restart(self) -> None:
        """What is left after a close or a crash."""
        self.transactions.clear()
        self.links.restart()
        for names in (self.queues, self.exchanges):
            for name in self._lost(names):
                self.destroy(names, name)
        for queue, entries in self.entries.items():
            kept = min(self.queues[queue], self.tier) >= UNSETTLED_STATE
            for message_id in [*entries]:
                if not (kept and self.messages[message_id].durable):
                    del entries[message_id]
        for message_id in [*self.messages]:
            self.messages[message_id].is_staged = False
            if not self.is_on_a_queue(message_id):
                del self.messages[message_id]

    def _lost(self, names: dict[str, int]) -> Iterable[str]:
        return [
            name for name, durability in names.items() if min(durability, self.tier) < CONFIGURATION
        ]


def with_spoiling(transaction: ModelTransaction | None, decide: Callable[[], None]) -> None:
    """Run `decide`; a refusal spoils the transaction that it is in."""
    try:
        decide()
    except (InvalidRequest, NotAcquired):
        if transaction is not None:
            transaction.is_spoiled = True
        raise
