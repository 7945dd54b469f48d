"""A dequeue that is plainly right is decided as by the single call; all else is left to that."""

from __future__ import annotations

import pytest

from broker_shim.durability import TerminusDurability
from broker_shim.errors import StoreError
from sparkstore.core.fold import State
from sparkstore.core.records import MessageHeader
from sparkstore.core.state_machine import transactions
from sparkstore.core.state_machine.batches import RequestOrigin, plain_dequeue
from sparkstore.core.state_machine.call_values import Queue, RecordStep, Transaction
from sparkstore.core.state_machine.state_machine import StoreStateMachine

ORIGIN = RequestOrigin("m", 7)


@pytest.fixture
def machine() -> StoreStateMachine:
    """With messages 1 to 3 on a durable queue `q`, 4 on a transient `t`."""
    made = StoreStateMachine(State(), TerminusDurability.UNSETTLED_STATE, lambda: 5)
    take(made, made.create(Queue("q")))
    take(made, made.create(Queue("t", TerminusDurability.NONE)))
    for queue in ("q", "q", "q", "t"):
        message, steps = made.message(MessageHeader(), b"body")
        take(made, steps)
        take(made, made.enqueue(message, queue))
    return made


def take(machine: StoreStateMachine, steps: list[RecordStep]) -> None:
    """Make steps true."""
    machine.apply(steps, machine.state.position + 1)


@pytest.mark.parametrize(("message_id", "queue"), [(2, "q"), (4, "t")])
def test_one_that_nobody_holds_is_decided_as_by_the_single_call(
    machine: StoreStateMachine, message_id: int, queue: str
) -> None:
    (alone,) = machine.dequeue(message_id, queue, None, None)
    asked = alone._replace(run=alone.record._replace(member="m", request=7))
    assert plain_dequeue(machine, message_id, queue, ORIGIN) == asked


@pytest.mark.parametrize(("message_id", "queue"), [(9, "q"), (4, "q"), (1, "nowhere")])
def test_one_that_is_not_there_is_left_to_the_call_that_says_so(
    machine: StoreStateMachine, message_id: int, queue: str
) -> None:
    assert plain_dequeue(machine, message_id, queue, ORIGIN) is None
    with pytest.raises(StoreError):
        machine.dequeue(message_id, queue, None, None)


def test_one_that_somebody_holds_or_a_transaction_claims_is_left_to_the_call(
    machine: StoreStateMachine,
) -> None:
    take(machine, machine.acquire(1, "q", "somebody"))
    assert plain_dequeue(machine, 1, "q", ORIGIN) is None
    transaction = Transaction(1, machine)
    machine.dequeue(2, "q", None, None, transaction)
    assert plain_dequeue(machine, 2, "q", ORIGIN) is None
    transactions.abort(machine, transaction)
    assert plain_dequeue(machine, 2, "q", ORIGIN) is not None
