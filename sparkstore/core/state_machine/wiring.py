"""Decide the calls about wiring and configuration: refuse, or make records. Pure.

The half of the state machine that knows no messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sparkstore.core import fold, policies, records
from sparkstore.core.durability import TerminusDurability
from sparkstore.core.queue_names import shown
from sparkstore.core.records import ExchangeBindingKey
from sparkstore.core.state_machine import definitions
from sparkstore.core.state_machine.arguments import (
    check_arguments,
    check_binding_key,
    check_definition,
    check_name,
    check_queue_definition,
)
from sparkstore.core.state_machine.call_values import Exchange, Queue, RecordStep
from sparkstore.errors import InvalidRequest

_KEPT_WIRING = TerminusDurability.CONFIGURATION


class WiringStateMachine:
    """State of one store, and the rules of these calls. Methods that return steps change nothing.

    Attributes:
        state: The fold of every step applied.
        durability: The highest tier the store keeps.
        now_us: The clock, UTC µs.
        policies: All there are, those that count most first.
    """

    def __init__(
        self, state: fold.State, durability: TerminusDurability, now_us: Callable[[], int]
    ) -> None:
        self.state = state
        self.durability = durability
        self.now_us = now_us
        self.policies = policies.policies_of(state.configured)

    def create(self, wiring: Queue | Exchange) -> list[RecordStep]:
        """No step if it is there with the same arguments."""
        detail = self._detail(wiring)
        known = self._definition(wiring)
        if known is None:
            is_queue = isinstance(wiring, Queue)
            make = records.queue_created if is_queue else records.exchange_created
            record = make(self.now_us(), wiring.name, detail)
            return [RecordStep(record, self.keeps(detail, _KEPT_WIRING))]
        if known != detail:
            message = f"{definitions.what(wiring)} exists as {known}, not as {detail}"
            raise InvalidRequest(message)
        return []

    def alter(self, queue: Queue) -> list[RecordStep]:
        """Give a queue another definition; no step if it has that already."""
        check_queue_definition(queue)
        known, detail = self.queue(queue.name).detail, self._detail(queue)
        if definitions.durability_of(known) is not queue.durability:
            message = f"{definitions.what(queue)} exists as {known}: its durability stays so"
            raise InvalidRequest(message)
        if known == detail:
            return []
        record = records.queue_altered(self.now_us(), queue.name, detail)
        return [RecordStep(record, self.keeps(detail, _KEPT_WIRING))]

    def destroy(self, wiring: Queue | Exchange) -> list[RecordStep]:
        """Destroy a queue or exchange; its bindings go first, by records of their own."""
        check_definition(wiring)
        detail = self._definition(wiring)
        if detail is None:
            message = f"unknown {definitions.what(wiring)}"
            raise InvalidRequest(message)
        is_queue = isinstance(wiring, Queue)
        steps = [
            RecordStep(records.unbound(self.now_us(), key), self._keeps_binding(key))
            for key in self.state.bindings
            if (key.queue if is_queue else key.exchange) == wiring.name
        ]
        make = records.queue_destroyed if is_queue else records.exchange_destroyed
        last = RecordStep(make(self.now_us(), wiring.name), self.keeps(detail, _KEPT_WIRING))
        return [*steps, last]

    def bind(self, key: ExchangeBindingKey, arguments: Mapping[str, Any]) -> list[RecordStep]:
        """No step if it is there with the same arguments."""
        check_binding_key(key)
        check_arguments(arguments)
        if key.exchange not in self.state.exchanges:
            message = f"unknown exchange {key.exchange!r}"
            raise InvalidRequest(message)
        self.queue(key.queue)
        known = self.state.bindings.get(key)
        detail = definitions.as_json({"arguments": dict(arguments)})
        if known is None:
            return [RecordStep(records.bound(self.now_us(), key, detail), self._keeps_binding(key))]
        if known != detail:
            message = f"binding {tuple(key)} exists as {known}, not as {detail}"
            raise InvalidRequest(message)
        return []

    def unbind(self, key: ExchangeBindingKey) -> list[RecordStep]:
        """Make the step that removes a binding."""
        check_binding_key(key)
        if key not in self.state.bindings:
            message = f"unknown binding {tuple(key)}"
            raise InvalidRequest(message)
        return [RecordStep(records.unbound(self.now_us(), key), self._keeps_binding(key))]

    def configure(
        self, category: str, key: str, detail: Mapping[str, Any] | None
    ) -> list[RecordStep]:
        """Create or replace an object, remove it with None; no step if it is so already.

        With a policy, the queues that it is about get their new definitions in the same call, also
        those that an older version told otherwise.
        """
        check_name(category, "category")
        check_name(key, "key")
        known = self.state.configured.get((category, key))
        now_us, is_kept = self.now_us(), self.durability >= _KEPT_WIRING
        if detail is None:
            gone = records.unconfigured(now_us, category, key)
            return [] if known is None else [RecordStep(gone, is_kept), *self._retold(gone)]
        made = records.configured(now_us, category, key, definitions.as_json(detail))
        is_new = known != made.detail
        return [*([RecordStep(made, is_kept)] if is_new else ()), *self._retold(made)]

    def _retold(self, record: records.Record) -> list[RecordStep]:
        """Give queues the definitions that they have with a change of a policy."""
        name, detail = record.binding_key or "", record.detail
        if record.exchange != policies.CATEGORY:
            return []
        policy = None if detail is None else policies.policy_of(name, detail)
        after, steps = policies.with_change(self.policies, name, policy), list[RecordStep]()
        for queue, standing in self.state.queues.items():
            old = definitions.queue_of(queue, standing.detail)
            new = definitions.as_policies_say(old, after)
            if new != old:
                text = definitions.detail_of(new)
                altered = records.queue_altered(self.now_us(), queue, text)
                steps.append(RecordStep(altered, self.keeps(text, _KEPT_WIRING)))
        return steps

    def _detail(self, wiring: Queue | Exchange) -> str:
        """The definition of a queue with what policies say of it, or of an exchange."""
        detail = definitions.detail_of(wiring)  # what is no definition is refused here
        if isinstance(wiring, Exchange):
            return detail
        with_policies = definitions.as_policies_say(wiring, self.policies)
        return detail if with_policies is wiring else definitions.detail_of(with_policies)

    def queue(self, queue: str) -> fold.QueueState:
        """Find a queue by its name.

        Raises:
            InvalidRequest: There is none of that name.
        """
        known = self.state.queues.get(queue)
        if known is None:
            message = f"unknown queue {shown(queue)}"
            raise InvalidRequest(message)
        return known

    def _definition(self, wiring: Queue | Exchange) -> str | None:
        if isinstance(wiring, Exchange):
            return self.state.exchanges.get(wiring.name)
        queue = self.state.queues.get(wiring.name)
        return None if queue is None else queue.detail

    def keeps(self, detail: str, least: TerminusDurability) -> bool:
        """True if what a definition grants, of what this store can keep, is `least` or more."""
        return min(definitions.durability_of(detail), self.durability) >= least

    def _keeps_binding(self, key: ExchangeBindingKey) -> bool:
        ends = (self.state.queues[key.queue].detail, self.state.exchanges[key.exchange])
        return all(self.keeps(detail, _KEPT_WIRING) for detail in ends)
