"""A branch in doubt lists runs; one that an earlier release prepared is restored the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count

import pytest

from sparkstore.core.durability import TerminusDurability
from sparkstore.core.fold import State
from sparkstore.core.records import MessageHeader
from sparkstore.core.state_machine import batches, branches, transactions
from sparkstore.core.state_machine.admission import DUPLICATE
from sparkstore.core.state_machine.call_values import (
    DequeueCall,
    EnqueueCall,
    Queue,
    RecordStep,
    StoredRun,
    Transaction,
)
from sparkstore.core.state_machine.definitions import planned_in
from sparkstore.core.state_machine.state_machine import StoreStateMachine
from sparkstore.core.xids import Xid

XID = Xid(1, b"g", b"b")


def test_a_branch_is_restored_from_runs_as_from_one_operation_for_each_message() -> None:
    machine = StoreStateMachine(State(), TerminusDurability.UNSETTLED_STATE, count(5).__next__)
    for name in ("q", "r"):
        machine.apply(machine.create(Queue(name)), machine.state.position + 1)
    headers = [MessageHeader(header=b"h", subject=f"{n // 2}") for n in range(6)]
    run, steps = batches.new_messages(machine, headers, [b"body"] * 6, 100)
    machine.apply([*steps, *machine_put(machine, run)], machine.state.position + 1)
    within = Transaction(1, machine)
    transactions.enqueue(machine, EnqueueCall(StoredRun(run.message_ids, headers), "r"), within)
    batches.decided(machine, DequeueCall(run.message_ids, "q", None), run.message_ids, within)
    steps = branches.prepare(machine, within, XID)
    machine.apply(steps, machine.state.position + 1)
    (detail,) = machine.state.prepared.values()
    assert len(json.loads(detail)["operations"]) == 2
    assert len(steps) == 2  # what it holds, and that it is prepared
    older = [
        {"kind": operation["kind"], "queue": operation["queue"], "message_id": message_id}
        | ({} if header is None else {"header": header})
        for operation, message_id, header in planned_in(detail)
    ]
    assert len(older) == 12
    restored = []
    for told in (detail, json.dumps({"operations": older, "since_us": 5, "member": None})):
        (key,) = machine.state.prepared
        machine.state.prepared[key] = told
        machine.branches.clear()
        branches.restore(machine)
        branch = machine.branches[key]
        restored.append((branch.steps, branch.claims, branch.taken))
        assert branches.prepared_in(machine.state)[0].operations == 12
    assert restored[0] == restored[1]
    branches.commit(machine, XID, 2)


def duplicated() -> tuple[StoreStateMachine, int]:
    """A machine with a branch of `a`, which `q` has already, and `b`; the id of `b`.

    `q` has no more room for new messages.
    """
    machine = StoreStateMachine(State(), TerminusDurability.UNSETTLED_STATE, count(5).__next__)
    machine.identity_of = lambda header: header.amqp_message_id
    asked = {"duplicate_window_ms": 600_000, "max_depth": 2}
    machine.apply(machine.create(Queue("q", arguments=asked)), machine.state.position + 1)
    headers = [MessageHeader("amqp", amqp_message_id=name) for name in ("a", "b", "a")]
    run, steps = batches.new_messages(machine, headers, [b"body"] * 3, 100)
    first, *others = run.singles()
    machine.apply([*steps, *machine.enqueue(first, "q")], machine.state.position + 1)
    within = Transaction(1, machine)
    for message in others:
        transactions.enqueue(machine, EnqueueCall(message, "q"), within)
    machine.apply(branches.prepare(machine, within, XID), machine.state.position + 1)
    branches.accept(machine, within, XID)
    return machine, others[0].message_id


@pytest.mark.parametrize("decide", [branches.commit, branches.roll_back])
@pytest.mark.parametrize("is_of_earlier_release", [False, True])
@pytest.mark.parametrize("is_restored", [False, True])
def test_a_branch_with_a_duplicate_is_decided_after_a_restart(
    decide: Callable[..., list[RecordStep]], is_restored: bool, is_of_earlier_release: bool
) -> None:
    machine, b = duplicated()
    a = b + 1
    if is_of_earlier_release:  # which dropped the duplicate when it prepared
        ((key, detail),) = machine.state.prepared.items()
        assert (a in machine.state.staged, b in machine.state.staged) == (True, True)
        del machine.state.staged[a]
        content, place = json.loads(detail), {"queue": "q", "message_id": a}
        content["operations"] = [
            content["operations"][0],
            {"kind": "enqueued", **place, "header": {"protocol": None, "body_bytes": 4}},
            {"kind": "dequeued", **place, "detail": DUPLICATE},
        ]
        machine.state.prepared[key] = json.dumps(content)
    if is_restored or is_of_earlier_release:
        machine.branches.clear()
        machine.in_doubt.clear()
        machine.fresh.clear()
        branches.restore(machine)
    machine.apply(decide(machine, XID, 2), machine.state.position + 1)
    branches.forget(machine, XID)
    left = [1, b] if decide is branches.commit else [1]
    assert [*machine.state.queues["q"].entries] == [*machine.state.messages] == left
    assert not machine.state.staged
    assert not (machine.claims)
    assert not (machine.in_doubt)
    assert not (machine.fresh)
    assert not machine.state.prepared


def machine_put(machine: StoreStateMachine, run: StoredRun) -> list[object]:
    """The steps that put new messages on `q`."""
    return [*transactions.put_alone(machine, EnqueueCall(run, "q")).steps]
