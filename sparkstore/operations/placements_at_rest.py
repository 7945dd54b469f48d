"""Turn placements for a root that nobody serves into steps of its state machine. Pure.

A running broker decides by the same `placement`; a contract test holds both equal.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparkstore.core.state_machine import transactions
from sparkstore.core.state_machine.call_values import EnqueueCall, StoredMessage, Transaction
from sparkstore.core.state_machine.state_machine import StoreStateMachine
from sparkstore.errors import StoreError
from sparkstore.operations.bulk import Answer
from sparkstore.operations.placement import (
    Placement,
    PlacementRequest,
    check_placements,
    decide_placement,
)
from sparkstore.operations.root_at_rest import Steps, add_step, new_messages, terms_in


def placement_steps(
    machine: StoreStateMachine, request: PlacementRequest, transaction: int
) -> tuple[list[Steps], Answer]:
    """The steps of placements, in groups, and the answer; the last group makes it all true.

    Raises:
        InvalidRequest: A queue is wrong, or there are too many (`check_placements`).
        Full: A queue has no room for a new message.
    """
    check_placements(request, lambda name: terms_in(machine.state, name))
    chosen, answer = _possible(machine, request.placements)
    drafts = [placement.draft for placement in chosen if placement.draft is not None]
    made, groups = new_messages(machine, drafts)
    new, together = iter(made), Transaction(transaction, machine)
    try:
        for placement in chosen:
            message = None if placement.draft is None else next(new)
            _add_placement(machine, together, request, placement, message)
    except StoreError:
        transactions.abort(machine, together)
        raise
    return [*groups, transactions.commit(machine, together)], answer


def _possible(
    machine: StoreStateMachine, placements: Sequence[Placement]
) -> tuple[list[Placement], Answer]:
    """Leave out what is not where it is to be taken from, or is held."""
    chosen, answer = [], Answer()
    for placement in placements:
        queue = machine.state.queues.get(placement.source or "")
        entry = None if queue is None else queue.entries.get(placement.message_id)
        if placement.source is not None and entry is None:
            answer = answer.plus(Answer(gone=1))
        elif entry is not None and entry.acquired_by is not None:
            answer = answer.plus(Answer(left=1))
        else:
            chosen.append(placement)
            answer = answer.plus(Answer(done=1))
    return chosen, answer


def _add_placement(
    machine: StoreStateMachine,
    together: Transaction,
    request: PlacementRequest,
    placement: Placement,
    message: StoredMessage | None,
) -> None:
    new_id = 0 if message is None else message.message_id
    if placement.source is not None:
        entry = machine.entry(placement.source, placement.message_id)
        for step in decide_placement(placement, request, entry, new_id):
            add_step(machine, together, placement.message_id, step)
    if message is not None:
        assert placement.target is not None
        carried = placement.annotations, placement.delivery_count
        transactions.enqueue(machine, EnqueueCall(message, placement.target, *carried), together)
