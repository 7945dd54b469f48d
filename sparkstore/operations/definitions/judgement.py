"""Decide all orders of a document at once, before the first of them is given.

Why the answer is that of the orders: each is decided by `administration.decide` upon the state that
those before it leave, and that state is the fold of the steps of `root_at_rest`, as it is where no
broker runs. So a document that is half wrong is refused as a whole.

Decision: an import makes what is not there, and changes nothing that is. So a policy of the same
name with another content is an error, as a queue is, although an order to set it would replace it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from sparkstore.core.durability import TerminusDurability
from sparkstore.core.fold import State
from sparkstore.core.policies import policies_of
from sparkstore.core.queue_names import shown
from sparkstore.core.state_machine.definitions import as_json
from sparkstore.core.state_machine.state_machine import StoreStateMachine
from sparkstore.errors import InvalidRequest, StoreError
from sparkstore.operations.administration import AdminAction, Order, decide
from sparkstore.operations.definitions.drafts import PlacedOrder, Problem
from sparkstore.operations.root_at_rest import StateFacts, order_steps


class Judgement(NamedTuple):
    """The decision about the orders of a document.

    Attributes:
        changes: The orders that change something, in order.
        answers: The answer to each order, also to those that change nothing.
        errors: The orders that are refused; none may be given then.
    """

    changes: list[Order]
    answers: list[dict[str, Any]]
    errors: list[Problem]


def judge(orders: Iterable[PlacedOrder], state: State) -> Judgement:
    """Decide every order, each upon what those before it leave.

    Args:
        orders: What a document asks for.
        state: That of the root; it is changed here, so the caller gives one of its own.
    """
    machine = StoreStateMachine(state, TerminusDurability.UNSETTLED_STATE, lambda: 0)
    judged = Judgement([], [], [])
    position = state.position
    for place, order in orders:
        try:
            _check_not_replaced(order, state)
            decided = decide(order, StateFacts(state))
            steps = order_steps(decided, machine)
        except InvalidRequest as reason:
            judged.errors.append(Problem(place, str(reason)))
            continue
        if steps:
            machine.apply([step._replace(is_kept=True) for step in steps], position + 1)
            position += len(steps)
        judged.answers.append(decided.answer)
        if decided.is_change:
            judged.changes.append(order)
    return judged


def unfinished(reason: StoreError, done: int, count: int) -> StoreError:
    """Tell how far an import came that was refused after all: the root has changed meanwhile."""
    return type(reason)(f"{reason}: {done} of {count} are done; run it again for the others")


def _check_not_replaced(order: Order, state: State) -> None:
    if order.act is not AdminAction.SET_POLICY:
        return
    name = shown(order.key)
    wanted = {"match": order.match, "priority": order.priority, "arguments": order.arguments}
    for standing in policies_of(state.configured):
        if standing.name == order.key and standing.detail != wanted:
            message = (
                f"policy {name} is there as {as_json(standing.detail)}: set it so, or take it out"
            )
            raise InvalidRequest(f"{message} of the document")
