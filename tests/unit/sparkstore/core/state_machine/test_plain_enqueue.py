"""An enqueue that is plainly right is decided as by the single call; all else is left to that."""

from __future__ import annotations

from typing import Any

import pytest

from broker_shim.durability import TerminusDurability
from broker_shim.errors import StoreError
from sparkstore.core.fold import State
from sparkstore.core.records import MessageHeader
from sparkstore.core.state_machine.batches import plain_enqueue
from sparkstore.core.state_machine.call_values import Queue, RecordStep, StoredMessage
from sparkstore.core.state_machine.state_machine import StoreStateMachine

MOST_BYTES = 4


@pytest.fixture
def machine() -> StoreStateMachine:
    """With a durable queue `q`, a transient `t`, and `ttl`, whose messages live 3 ms at most."""
    made = StoreStateMachine(State(), TerminusDurability.UNSETTLED_STATE, lambda: 5)
    take(made, made.create(Queue("q")))
    take(made, made.create(Queue("t", TerminusDurability.NONE)))
    take(made, made.create(Queue("ttl", arguments={"message_ttl_ms": 3})))
    return made


def take(machine: StoreStateMachine, steps: list[RecordStep]) -> None:
    """Make steps true."""
    machine.apply(steps, machine.state.position + 1)


def made(machine: StoreStateMachine, body: bytes = b"body", **fields: Any) -> StoredMessage:
    """A new message."""
    message, steps = machine.message(MessageHeader(**fields), body)
    take(machine, steps)
    return message


@pytest.mark.parametrize("queue", ["q", "t", "ttl"])
@pytest.mark.parametrize("durable", [True, False])
def test_a_new_message_is_decided_as_by_the_single_call(
    machine: StoreStateMachine, queue: str, *, durable: bool
) -> None:
    message = made(machine, durable=durable, header=b"as it came", expires_at=9_000_000)
    steps = plain_enqueue(machine, message, queue, MOST_BYTES)
    assert steps is not None
    assert steps == machine.enqueue(message, queue)


@pytest.mark.parametrize(
    "changed",
    [
        {"message_id": 2},
        {"message_id": "1"},
        {"body": b"other"},
        {"body": bytearray(b"body")},
        {"header": MessageHeader()},
        {"header": MessageHeader(None, body_bytes=4)},
        {"header": MessageHeader(priority="4", body_bytes=4)},  # type: ignore[arg-type]
        {"header": tuple(MessageHeader(body_bytes=4))},
        {"is_staged": True},
        {"is_staged": 0},
    ],
)
def test_a_message_that_is_not_as_it_was_made_is_left_to_the_call(
    machine: StoreStateMachine, changed: dict[str, Any]
) -> None:
    message = made(machine)._replace(**changed)
    assert plain_enqueue(machine, message, "q", MOST_BYTES) is None


def test_what_is_no_message_and_a_queue_that_is_none_are_left_to_the_call(
    machine: StoreStateMachine,
) -> None:
    message = made(machine)
    assert plain_enqueue(machine, tuple(message), "q", MOST_BYTES) is None  # type: ignore[arg-type]
    assert plain_enqueue(machine, None, "q", MOST_BYTES) is None  # type: ignore[arg-type]
    assert plain_enqueue(machine, message, "nowhere", MOST_BYTES) is None
    assert plain_enqueue(machine, message, ["q"], MOST_BYTES) is None  # type: ignore[arg-type]
    assert plain_enqueue(machine, made(machine, b"large"), "q", MOST_BYTES) is None


def test_a_second_queue_and_one_that_it_has_left_are_left_to_the_call(
    machine: StoreStateMachine,
) -> None:
    message = made(machine)
    take(machine, machine.enqueue(message, "q"))
    assert plain_enqueue(machine, message, "q", MOST_BYTES) is None
    assert plain_enqueue(machine, message, "ttl", MOST_BYTES) is None
    take(machine, machine.dequeue(message.message_id, "q", None, None))
    assert plain_enqueue(machine, message, "q", MOST_BYTES) is None
    with pytest.raises(StoreError):
        machine.enqueue(message, "q")


def test_content_that_did_not_all_come_is_left_to_the_call(machine: StoreStateMachine) -> None:
    message = made(machine, b"")
    assert plain_enqueue(machine, message, "q", MOST_BYTES) is None  # it may come in pieces yet
    machine.begin_content(message)
    assert plain_enqueue(machine, message, "q", MOST_BYTES) is None


@pytest.mark.parametrize("whose", ["promised", "in_doubt"])
def test_while_a_branch_is_prepared_all_is_left_to_the_call(
    machine: StoreStateMachine, whose: str
) -> None:
    message = made(machine)
    getattr(machine, whose)["anything"] = "xid"
    assert plain_enqueue(machine, message, "q", MOST_BYTES) is None
