"""Turn an administrator's request for a root that nobody serves into steps of its state machine.

Pure.

A running broker decides by the same `administration.decide` and `bulk.decide`, and its store by the
same state machine; a contract test holds both equal. The caller applies what comes back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from sparkstore.core import records
from sparkstore.core.fold import State
from sparkstore.core.link_records import link_key
from sparkstore.core.policies import CATEGORY, Policy, policies_of
from sparkstore.core.queue_arguments import QueueTerms, arguments_of, terms_of
from sparkstore.core.queue_names import shown
from sparkstore.core.records import ExchangeBindingKey
from sparkstore.core.state_machine import batches, transactions
from sparkstore.core.state_machine.admission import Admission
from sparkstore.core.state_machine.arguments import PIECE_BYTES
from sparkstore.core.state_machine.call_values import (
    EnqueueCall,
    Exchange,
    Queue,
    RecordStep,
    StoredMessage,
    Transaction,
)
from sparkstore.core.state_machine.definitions import queue_of
from sparkstore.core.state_machine.state_machine import StoreStateMachine
from sparkstore.core.wiring_arguments import alternate_of
from sparkstore.errors import InvalidRequest, StoreError
from sparkstore.operations import bulk
from sparkstore.operations.administration import AdminAction, OrderDecision, OwnLink, new_exchange
from sparkstore.operations.bulk import Action, Answer, BulkStep, MessageDraft, Plan, Request, Room
from sparkstore.operations.placement import PlacementRequest, check_placements, plan_placement
from sparkstore.operations.policy_orders import count_over_delivered
from sparkstore.operations.queue_alteration import QueueUsage

Steps = list[RecordStep]


class StateFacts:
    """`AdministrationFacts` of a root that nobody serves, so that no consumer is attached."""

    def __init__(self, state: State) -> None:
        self._state = state

    @property
    def queues(self) -> Collection[str]:
        """Names of all queues."""
        return self._state.queues.keys()

    def detail(self, queue: str) -> str | None:
        """Definition of a queue; None: there is none."""
        known = self._state.queues.get(queue)
        return None if known is None else known.detail

    def standing(self, queue: str) -> QueueUsage:
        """Return how many messages a queue holds; nobody uses it."""
        return QueueUsage(len(self._state.queues[queue].entries))

    def policies(self) -> Sequence[Policy]:
        """Return all policies, those that count most first."""
        return policies_of(self._state.configured)

    def over_delivered(self, queue: str, limit: int) -> int:
        """Count waiting messages of a queue with more failed deliveries than a limit."""
        return count_over_delivered(self._state.queues[queue].entries.marked(), limit)

    def link_of(self, queue: str) -> OwnLink | None:
        """Return the link whose own queue it is; None: no link's."""
        text = own_link_text(self._state, queue)
        if text is None:
            return None
        key = link_key(text)
        name = f"link {shown(key.name)} of {shown(key.remote_container_id)}"
        return OwnLink(name, is_attached=False)

    def senders_of_dead_letters(self, queue: str) -> list[str]:
        """Return the other queues that have this one as their dead-letter queue."""
        return [
            name
            for name, other in self._state.queues.items()
            if name != queue and terms_of(other.detail).arguments.dead_letter_queue == queue
        ]

    def exchange_type(self, exchange: str) -> str | None:
        """Type of an exchange; None: there is none."""
        detail = self._state.exchanges.get(exchange)
        return None if detail is None else str(json.loads(detail).get("type", ""))

    def alternate_of(self, exchange: str) -> str | None:
        """The alternate of an exchange; None: it has none."""
        detail = self._state.exchanges.get(exchange)
        return None if detail is None else alternate_of(arguments_of(detail))

    def users_of_alternate(self, exchange: str) -> list[str]:
        """Name the queues and exchanges that have this alternate exchange, for a person."""
        exchanges, queues = self._state.exchanges.items(), self._state.queues.items()
        return [
            *(
                f"exchange {shown(name)}"
                for name, detail in exchanges
                if alternate_of(arguments_of(detail)) == exchange
            ),
            *(
                f"queue {shown(name)}"
                for name, queue in queues
                if terms_of(queue.detail).arguments.alternate_exchange == exchange
            ),
        ]

    def bindings(self) -> Collection[ExchangeBindingKey]:
        """Return the keys of all bindings."""
        return self._state.bindings.keys()

    def binding_arguments(self, key: ExchangeBindingKey) -> Mapping[str, Any]:
        """Return the arguments of an existing binding."""
        return arguments_of(self._state.bindings[key])


def own_link_text(state: State, queue: str) -> str | None:
    """The link whose own queue this is, as records name it; None: there is none."""
    for text, link in state.links.items():
        if json.loads(link.detail).get("queue") == queue:
            return text
    return None


def order_steps(decided: OrderDecision, machine: StoreStateMachine) -> Steps:
    """The steps of a decided order; they become true together.

    Raises:
        InvalidRequest: It makes a queue that would not outlive this.
    """
    return _STEPS[decided.order.act](decided, machine) if decided.is_change else []


def _queue_created(decided: OrderDecision, machine: StoreStateMachine) -> Steps:
    order = decided.order
    if not order.durability:
        message = f"queue {shown(order.queue)} is to end with its broker, and none runs: start one,"
        raise InvalidRequest(f"{message} or say another durability")
    return machine.create(queue_of(order.queue, decided.detail))


def _queue_altered(decided: OrderDecision, machine: StoreStateMachine) -> Steps:
    return machine.alter(queue_of(decided.order.queue, decided.detail))


def _queue_destroyed(decided: OrderDecision, machine: StoreStateMachine) -> Steps:
    queue = decided.order.queue
    standing = machine.state.queues[queue]
    if standing.entries and terms_of(standing.detail).arguments.alternate_exchange is not None:
        message = f"queue {shown(queue)} has messages for its alternate exchange, and a broker that"
        message += f" runs routes them: start one, or purge {shown(queue)} first"
        raise InvalidRequest(message)
    link = own_link_text(machine.state, queue)
    ended = [] if link is None else machine.detach(link_key(link), closed=True)
    return [*ended, *machine.destroy(Queue(queue))]


def _exchange_created(decided: OrderDecision, machine: StoreStateMachine) -> Steps:
    return machine.create(new_exchange(decided))


def _exchange_destroyed(decided: OrderDecision, machine: StoreStateMachine) -> Steps:
    return machine.destroy(Exchange(decided.order.exchange, ""))


def _bound(decided: OrderDecision, machine: StoreStateMachine) -> Steps:
    return machine.bind(decided.order.binding_key, arguments_of(decided.detail))


def _unbound(decided: OrderDecision, machine: StoreStateMachine) -> Steps:
    return machine.unbind(decided.order.binding_key)


def _policy_changed(decided: OrderDecision, machine: StoreStateMachine) -> Steps:
    detail = json.loads(decided.detail) if decided.detail else None
    return machine.configure(CATEGORY, decided.order.key, detail)


_STEPS: Mapping[AdminAction, Callable[[OrderDecision, StoreStateMachine], Steps]] = {
    AdminAction.CREATE_QUEUE: _queue_created,
    AdminAction.ALTER_QUEUE: _queue_altered,
    AdminAction.DELETE_QUEUE: _queue_destroyed,
    AdminAction.CREATE_EXCHANGE: _exchange_created,
    AdminAction.DELETE_EXCHANGE: _exchange_destroyed,
    AdminAction.ADD_BINDING: _bound,
    AdminAction.REMOVE_BINDING: _unbound,
    AdminAction.SET_POLICY: _policy_changed,
    AdminAction.DELETE_POLICY: _policy_changed,
}


def plan(state: State, request: Request, *, now_us: int) -> tuple[bulk.Plan, str | None]:
    """Decide a request; also a dead-letter queue that is not there, and has to be created first.

    Args:
        state: What there is.
        request: What is asked for.
        now_us: The time that expiry is decided by, UTC µs.

    Raises:
        InvalidRequest: Queue, target or number of messages is wrong (`bulk.check`).
    """
    target = bulk.check(request, lambda name: terms_in(state, name))
    queue = state.queues[request.queue]
    is_other = target is not None and target != request.queue and target in state.queues
    on_target = state.queues[target].entries if is_other and target is not None else {}
    arguments = terms_of(queue.detail).arguments
    room = _room(state, target) if request.action is Action.REDRIVE else None
    facts = bulk.BulkFacts(queue.entries, on_target, arguments, now_us, room)
    planned = bulk.plan(request, target, [[*dict.fromkeys(request.message_ids)]], facts)
    return planned, target if planned.steps and target not in state.queues else None


def _room(state: State, target: str | None) -> Room:
    queue = state.queues[target or ""]
    entries = queue.entries
    return Room(terms_of(queue.detail).arguments, len(entries), entries.message_bytes)


def bulk_steps(machine: StoreStateMachine, calls: Iterable[BulkStep], transaction: int) -> Steps:
    """The steps of a plan's calls, in one transaction; the queues that it needs are there.

    Raises:
        StoreError: One of them is refused, and so are all.
    """
    together = Transaction(transaction, machine)
    try:
        for call in calls:
            if isinstance(call, EnqueueCall):
                transactions.enqueue(machine, call, together)
                continue
            outcomes = batches.decided(machine, call, call.message_ids, together).outcomes
            for refusal in filter(None, outcomes):
                raise refusal
    except StoreError:
        transactions.abort(machine, together)
        raise
    return transactions.commit(machine, together)


def placement_steps(
    machine: StoreStateMachine, request: PlacementRequest, transaction: int
) -> tuple[list[Steps], Answer]:
    """The steps of placements, in groups, and the answer; the last group makes it all true.

    Raises:
        InvalidRequest: A queue is wrong, or there are too many (`check_placements`).
        Full: A queue has no room for a new message.
    """
    check_placements(request, lambda name: terms_in(machine.state, name))
    answer, groups, steps = Answer(), list[Steps](), list[BulkStep]()
    for placement in request.placements:
        drafts = [] if placement.draft is None else [placement.draft]
        planned = Plan([], [], Answer(done=1))
        if placement.source is not None:
            entries, ids = machine.state.queues[placement.source].entries, placement.message_ids
            new_id = machine.next_id if drafts else 0
            planned = plan_placement(placement, request, [ids], entries, new_id)
        answer = answer.plus(planned.answer)
        steps += planned.steps
        if drafts and planned.answer.done:
            [message], contents = new_messages(machine, drafts)
            groups += contents
            assert placement.target is not None
            carried = placement.annotations, placement.delivery_count
            steps.append(EnqueueCall(message, placement.target, *carried))
    return [*groups, bulk_steps(machine, steps, transaction)], answer


def put_steps(
    machine: StoreStateMachine, queue: str, messages: Sequence[MessageDraft], transaction: int
) -> list[Steps]:
    """The steps that put new messages on a queue, in groups; the last makes it true.

    What groups before it bring is content that a cut leaves on no queue.

    Raises:
        InvalidRequest: No such queue, or one that keeps no messages.
        Full: The queue has no room for all of them.
    """
    terms = terms_in(machine.state, queue)
    if terms is None or not terms.keeps_messages:
        message = f"unknown queue {queue!r}, or one that keeps no messages: create it first"
        raise InvalidRequest(message)
    made, groups = new_messages(machine, messages)
    admission = Admission(machine, transaction)
    for new in made:
        machine.enqueue(new, queue, admission)
    return [*groups, admission.steps]


def new_messages(
    machine: StoreStateMachine, drafts: Sequence[MessageDraft]
) -> tuple[list[StoredMessage], list[Steps]]:
    """Make new messages, and the steps that bring the content of large ones in pieces."""
    first_id, reserved = machine.reserve(len(drafts))
    made: list[StoredMessage] = []
    groups = [reserved]
    for message_id, (header, body) in enumerate(drafts, first_id):
        header_bytes = len(header.header or b"")
        sized = header._replace(durable=True, header_bytes=header_bytes, body_bytes=len(body))
        pieces = range(0, len(body), PIECE_BYTES) if len(body) > PIECE_BYTES else ()
        for start in pieces:
            piece = body[start : start + PIECE_BYTES]
            staged = records.content_staged(machine.now_us(), message_id, start, piece)
            groups.append([RecordStep(staged, is_kept=True)])
        whole = StoredMessage(message_id, sized, b"" if pieces else body, is_staged=bool(pieces))
        machine.trust(message_id)
        made.append(whole)
    return made, groups


def terms_in(state: State, name: str) -> QueueTerms | None:
    """Return the terms of a queue; None if there is none of this name."""
    queue = state.queues.get(name)
    return None if queue is None else terms_of(queue.detail)
