"""An undo does the same through a broker, through a store service, and for a root at rest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkstore.control.bulk_run import Job, run
from sparkstore.control.undo_run import Undo, planned_undo, run_undo
from sparkstore.operations.administration import AdminAction, Order
from sparkstore.operations.bulk import Action, Answer, MessageDraft
from sparkstore.operations.undo import FULL
from sparkstore.recovery.operation_log import deletion_of, operations
from sparkstore.recovery.recovery import recover
from sparkstore.tables.root import open_root
from tests.support.stores.controls import HEADER, Place

OPERATION = "0123abcd"


@pytest.fixture(params=["served", "at rest", "service"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    is_service = request.param == "service"
    is_served = is_service or request.param == "served"
    it = Place(tmp_path / "root", is_served=is_served, by_service=is_service)
    it.create("q")
    it.create("other")
    yield it
    it.close()


def show(_answer: Answer) -> None:
    """Nobody watches."""


def undo(place: Place, operation: str, name: str) -> Undo:
    place.control.flush()
    root = open_root(place.path)
    found = planned_undo(root, recover(root).state, operation, name)
    run_undo(place.control, root, found, name, show)
    return found


def test_moves_requeues_and_purges_are_undone_in_order_with_counts(place: Place) -> None:
    ids = place.put("q", count=6)
    place.fail("q", ids[2], times=2)
    place.hold("q", ids[5])
    control = place.control
    run(control, Job(Action.MOVE, "q", "other", "moved001"), ids[1:3], show)
    run(control, Job(Action.REQUEUE, "q", None, "requeue1"), ids[:1], show)
    run(control, Job(Action.PURGE, "q", None, "purged01"), ids[3:4], show)
    held = undo(place, "purged01", "undo0001")
    assert (held.plan.restored, held.plan.lost) == ({"q": 1}, {})
    undo(place, "requeue1", "undo0002")
    undo(place, "moved001", "undo0003")
    after = place.after()
    entries = after.state.queues["q"].entries
    there = [each for each in after.ids("q") if each != ids[5]]  # the held one keeps its place
    assert [after.body(each) for each in there] == [b"body %d" % n for n in range(5)]
    assert (there[:3], there[4]) == (ids[:3], ids[4])
    assert [entries[each].delivery_count for each in there] == [0, 0, 2, 0, 0]
    assert after.ids("other") == []


def test_what_a_queue_has_no_room_for_is_told_and_comes_back_later(place: Place) -> None:
    place.create("small", max_bytes=3 * len(b"hbody 0"))
    ids = place.put("small", count=3)
    control = place.control
    run(control, Job(Action.PURGE, "small", None, OPERATION), ids, show)
    control.put("small", [MessageDraft(HEADER, b"body 9")])
    found = undo(place, OPERATION, "undo0001")
    assert (found.plan.restored, found.plan.lost) == ({"small": 2}, {FULL: ids[2:]})
    control.flush()
    newest = [*recover(open_root(place.path)).state.queues["small"].entries][-1]
    run(control, Job(Action.MOVE, "small", "other"), [newest], show)
    assert undo(place, OPERATION, "undo0002").plan.restored == {"small": 1}
    after = place.after()
    assert [after.body(each) for each in after.ids("small")] == [b"body %d" % n for n in range(3)]


def test_a_purge_order_and_a_deletion_are_undone(place: Place) -> None:
    place.put("q", count=3)
    control = place.control
    control.purge("q", show, OPERATION)
    undo(place, OPERATION, "undo0001")
    control.order(Order(AdminAction.DELETE_QUEUE, "q", force=True))
    control.flush()
    root = open_root(place.path)
    deletion = deletion_of(root, "q")
    assert deletion is not None
    undo(place, deletion, "undo0002")
    listed = {each.operation: each.undone_by for each in operations(root)}
    assert (listed[OPERATION], listed["undo0001"]) == ("undo0001", None)
    after = place.after()
    assert [after.body(each) for each in after.ids("q")] == [b"body %d" % n for n in range(3)]
