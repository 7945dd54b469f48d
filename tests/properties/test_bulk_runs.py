"""What is decided about a run of messages is what is decided about each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkstore.core import entries as entries_module
from sparkstore.core import entry_chunk
from sparkstore.core.annotations import Death, as_detail, with_death
from sparkstore.core.entries import Entries, Entry
from sparkstore.core.queue_arguments import QueueArguments
from sparkstore.core.state_machine.call_values import EnqueueCall, StoredRun
from sparkstore.operations.bulk import (
    Action,
    Answer,
    BulkFacts,
    BulkStep,
    Plan,
    Request,
    Room,
    plan,
)
from sparkstore.operations.placement import Placement, PlacementRequest, plan_placement

DEAD = as_detail(with_death(None, Death("t", "expired", 1, 0)))
ENTRIES = st.lists(
    st.builds(
        Entry,
        position=st.sampled_from([0, 7, 7, 7]),
        at=st.just(1),
        priority=st.sampled_from([4, 4, 4, 9]),
        expires_at=st.sampled_from([None, None, 5, 100]),
        message_bytes=st.sampled_from([10, 10, 30]),
        acquired_by=st.sampled_from([None, None, None, "c"]),
        delivery_count=st.sampled_from([0, 0, 3]),
        detail=st.sampled_from([None, None, DEAD]),
    ),
    min_size=1,
    max_size=30,
)


@pytest.fixture(autouse=True, scope="module")
def _small_chunks() -> Iterator[None]:
    """Entries are packed from the second on, four to a chunk."""
    with (
        patch.object(entry_chunk, "CHUNK", 4),
        patch.object(entries_module, "CHUNK", 4),
        patch.object(entries_module, "_YOUNG", 8),
    ):
        yield


def on_queue(found: Sequence[Entry], first_id: int) -> Entries:
    """Some of them leave again, so that chunks have gaps."""
    entries = Entries()
    for message_id, entry in enumerate(found, first_id):
        entries.add(message_id, replace(entry))
    entries.remove([first_id + at for at in range(0, len(found), 5)])
    return entries


def singly(steps: Iterable[BulkStep]) -> list[BulkStep]:
    """Each step as steps of one message, those of a message together, in the order of their ids."""
    singles: list[BulkStep] = []
    for step in steps:
        if isinstance(step, EnqueueCall):
            assert isinstance(step.message, StoredRun)
            for message in step.message.singles():
                run = StoredRun((message.message_id,), (message.header,))
                singles.append(replace(step, message=run))
        else:
            singles += [replace(step, message_ids=range(i, i + 1)) for i in step.message_ids]

    def message_of(step: BulkStep) -> int:
        return (step.message if isinstance(step, EnqueueCall) else step).message_ids[0]

    return sorted(singles, key=message_of)


def alike(decide: Callable[[Iterable[Sequence[int]]], Plan], ids: Sequence[int]) -> Answer:
    together, each = decide([ids]), decide([range(i, i + 1) for i in ids])
    assert together.answer == each.answer
    assert singly(together.steps) == singly(each.steps)
    taken = [message_id for part in together.takes for message_id in part]
    assert taken == [message_id for part in each.takes for message_id in part]
    assert sum(together.answer) == len(ids)
    return together.answer


@given(
    ENTRIES,
    ENTRIES,
    st.integers(1, 12),
    st.sampled_from(Action),
    st.none() | st.integers(0, 20),
)
def test_an_action_is_decided_alike_for_a_run_and_for_each_of_its_messages(
    found: list[Entry], there: list[Entry], offset: int, action: Action, most: int | None
) -> None:
    entries, target = on_queue(found, 1), on_queue(there, offset)
    arguments = QueueArguments(max_delivery_count=2)
    request = Request(action, "q", (), "t", "0123abcd")
    to = "q" if action is Action.REQUEUE else "t"

    def decide(message_ids: Iterable[Sequence[int]]) -> Plan:
        room = None if most is None else Room(QueueArguments(max_depth=most), 3, 0)
        facts = BulkFacts(entries, target if to == "t" else {}, arguments, 50, room)
        return plan(request, to, message_ids, facts)

    alike(decide, range(1, len(found) + 3))


@given(ENTRIES, st.sampled_from([None, "t", "q"]), st.none() | st.integers(60, 70))
def test_a_change_of_place_is_decided_alike_for_a_run_and_for_each_of_its_messages(
    found: list[Entry], to: str | None, expires_at: int | None
) -> None:
    placement = Placement(1, "q", to, None, expires_at, 2, messages=len(found) + 2)
    request, entries = PlacementRequest((placement,), "0123abcd"), on_queue(found, 1)
    ids = placement.message_ids
    answer = alike(lambda parts: plan_placement(placement, request, parts, entries), ids)
    left = {i: entry for i, entry in entries.items() if entry.acquired_by is not None}
    assert answer == Answer(len(entries) - len(left), len(left), len(ids) - len(entries))
