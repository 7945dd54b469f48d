"""A branch in doubt lists runs; one that an earlier release prepared is restored the same."""

from __future__ import annotations

import json
from itertools import count

from sparkstore.core.durability import TerminusDurability
from sparkstore.core.fold import State
from sparkstore.core.records import MessageHeader
from sparkstore.core.state_machine import batches, branches, transactions
from sparkstore.core.state_machine.call_values import (
    DequeueCall,
    EnqueueCall,
    Queue,
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


def machine_put(machine: StoreStateMachine, run: StoredRun) -> list[object]:
    """The steps that put new messages on `q`."""
    return [*transactions.put_alone(machine, EnqueueCall(run, "q")).steps]
