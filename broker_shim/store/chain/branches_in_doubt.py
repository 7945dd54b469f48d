"""Branches in doubt of a store that follows another one, when both are opened. Pure.

The one that follows has a beginning of what the other has. So each of its branches is one of these:

* The other has it in doubt, too, with the same calls: it stays.
* The other has decided it since. It is decided here as it was there, as far as that can be seen by
  what is on the queues. Where it cannot be seen, both decisions leave the same. Were it decided
  wrongly, the difference of the queues that is made up for next would undo that.
* The other has a branch of this name in doubt that is another one: that was prepared after the one
  here was decided, which is the case above.
* Its place on a queue is lost: the queue was destroyed there and made anew, or the order of the
  queue differs before it. Then it is undone here and prepared anew.

What the other has in doubt and this one has not is prepared here at the end, when the queues are as
they were there before it was prepared. What the branch holds is available then, or with whoever
gives it back within the branch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from broker_shim.store.branch_store import BranchSteps, Xid
from broker_shim.store.interface import Entry
from sparkstore.core.annotations import annotations_of, as_detail, given_back
from sparkstore.core.records import Kind, Record
from sparkstore.core.state_machine.call_values import (
    AcquireCall,
    CommitPreparedCall,
    DequeueCall,
    EnqueueCall,
    ReleaseCall,
    RollbackPreparedCall,
    StoreCall,
)

NOBODY = "store-chain"
"""Holds an entry for a moment, to give it back with what it lacks."""

Branches = Mapping[Xid, BranchSteps]
Entries = Mapping[str, Mapping[int, Entry]]


class MissingBranch(NamedTuple):
    """A branch that is in doubt in the other store: to be prepared here.

    Attributes:
        xid: The name that its coordinator gave it.
        steps: Its calls in order, without `prepare`; of an enqueue the content is to be loaded
            there, if it is not in memory.
    """

    xid: Xid
    steps: Sequence[StoreCall]


class ChangedEntries(Mapping[int, Entry]):
    """The entries of a queue with a few changes, which are not copied for that."""

    def __init__(self, entries: Mapping[int, Entry]) -> None:
        self._entries = entries
        self._changed: dict[int, Entry | None] = {}

    def __getitem__(self, message_id: int) -> Entry:
        """An entry, changed or not."""
        if message_id not in self._changed:
            return self._entries[message_id]
        if (entry := self._changed[message_id]) is None:
            raise KeyError(message_id)
        return entry

    def __iter__(self) -> Iterator[int]:
        """Iterate in queue order; what was put is at the end."""
        for message_id in self._entries:
            if self._changed.get(message_id, self) is not None:
                yield message_id
        for message_id, entry in self._changed.items():
            if entry is not None and message_id not in self._entries:
                yield message_id

    def __len__(self) -> int:
        """The number of entries that are left."""
        return sum(1 for _ in self)

    def change(self, message_id: int, entry: Entry | None) -> None:
        """Have an entry, or None: have it no more."""
        self._changed[message_id] = entry


def same_branches(
    ours: Branches,
    theirs: Branches,
    queues: tuple[Entries, Entries],
    kept_of: Callable[[Mapping[int, Entry], Mapping[int, Entry]], set[int]],
) -> set[Xid]:
    """The branches of both that can stay as they are.

    Args:
        ours: Those of the store that is followed.
        theirs: Those of the one that follows.
        queues: The entries of both; of a queue that is to be made anew `theirs` has none.
        kept_of: Which entries of a queue stay where they are, of ours and theirs.
    """
    our_entries, their_entries = queues
    same = {xid for xid in ours if xid in theirs and _told(ours[xid]) == _told(theirs[xid])}
    while True:
        decided = after(their_entries, our_entries, _without(theirs, same))
        disturbed: set[Xid] = set()
        for name in {_place(step)[0] for xid in same for step in ours[xid]}:
            our_queue, here = our_entries[name], decided.get(name)
            kept = set() if here is None else kept_of(our_queue, here)
            disturbed |= {xid for xid in same if not _stays(ours[xid], name, our_queue, here, kept)}
        if not disturbed:
            return same
        same -= disturbed


def decisions(theirs: Branches, our_entries: Entries) -> Iterator[StoreCall]:
    """Make the calls that decide the branches which the other store has decided."""
    for xid, steps in theirs.items():
        decide = CommitPreparedCall if _was_committed(steps, our_entries) else RollbackPreparedCall
        yield decide(xid)


def after(their_entries: Entries, our_entries: Entries, theirs: Branches) -> Entries:
    """Get their entries as they are after `decisions`."""
    changed: dict[str, ChangedEntries] = {}
    for steps in theirs.values():
        commits = _was_committed(steps, our_entries)
        for step in steps:
            name, message_id = _place(step)
            if name not in their_entries:
                continue
            queue = changed.setdefault(name, ChangedEntries(their_entries[name]))
            if isinstance(step, EnqueueCall):
                annotations = step.annotations
                detail = None if annotations is None else as_detail(annotations)
                if commits:
                    queue.change(message_id, Entry(0, 0, 0, None, 0, detail=detail))
            elif commits:
                queue.change(message_id, _done(step, queue[message_id]))
            else:
                entry = queue[message_id]
                detail = given_back(entry.detail, None) or entry.detail
                queue.change(message_id, replace(entry, acquired_by=None, detail=detail))
    return {**their_entries, **changed}


def before(our_entries: Entries, ours: Branches) -> Entries:
    """Get our entries as they were before these branches were prepared."""
    changed: dict[str, ChangedEntries] = {}
    for steps in ours.values():
        seen: set[tuple[str, int]] = set()
        for step in steps:
            name, message_id = place = _place(step)
            if isinstance(step, EnqueueCall) or place in seen:
                continue
            seen.add(place)
            queue = changed.setdefault(name, ChangedEntries(our_entries[name]))
            holder = NOBODY if step.kind is Kind.RELEASED else None
            queue.change(message_id, replace(queue[message_id], acquired_by=holder))
    return {**our_entries, **changed}


def missing_branch(xid: Xid, steps: BranchSteps, our_entries: Entries) -> MissingBranch:
    """Make the calls that prepare a branch anew; `our_entries` are those `before`."""
    calls: list[StoreCall] = []
    seen: dict[tuple[str, int], Entry] = {}
    for step in steps:
        if isinstance(step, EnqueueCall):
            calls.append(step)
            continue
        name, message_id = place = _place(step)
        entry = seen.get(place, our_entries[name][message_id])
        calls.append(_call_of(step, entry))
        seen[place] = _done(step, entry) or entry
    return MissingBranch(xid, calls)


def _without(branches: Branches, some: set[Xid]) -> Branches:
    return {xid: steps for xid, steps in branches.items() if xid not in some}


def _told(steps: BranchSteps) -> list[Any]:
    """List the calls of a branch without times and transactions, which differ in each store."""
    return [
        (*_place(step), step.annotations and as_detail(step.annotations))
        if isinstance(step, EnqueueCall)
        else (step.kind, *_place(step), step.holder, step.delivery_count, step.detail)
        for step in steps
    ]


def _stays(
    steps: BranchSteps,
    queue: str,
    ours: Mapping[int, Entry],
    theirs: Mapping[int, Entry] | None,
    kept: set[int],
) -> bool:
    """Whether what a branch holds on a queue is the same entry in both, at the same place."""
    used = [step for step in steps if _place(step)[0] == queue]
    if theirs is None:
        return not used
    held = [_place(step)[1] for step in used if isinstance(step, Record)]
    return all(i in kept and _state(ours[i]) == _state(theirs[i]) for i in held)


def _state(entry: Entry) -> tuple[str | None, int, str | None]:
    return entry.acquired_by, entry.delivery_count, entry.detail


def _place(step: EnqueueCall | Record) -> tuple[str, int]:
    if isinstance(step, EnqueueCall):
        return step.queue, step.message.message_ids[0]
    assert step.queue is not None
    assert step.message_id is not None
    return step.queue, step.message_id


def _was_committed(steps: BranchSteps, ours: Entries) -> bool:
    """Whether a branch looks committed, by what is on the queues now."""
    taken: list[bool] = []
    for step in steps:
        name, message_id = _place(step)
        entry = ours.get(name, {}).get(message_id)
        if isinstance(step, Record):
            taken.append(entry is None or _is_done(step, entry))
        elif entry is not None:
            return True
    return bool(taken) and all(taken)


def _is_done(step: Record, entry: Entry) -> bool:
    """Whether an entry that is still there looks as the committed call leaves it."""
    if step.kind is Kind.RELEASED:
        return entry.delivery_count >= (step.delivery_count or 0)
    return step.kind is Kind.ACQUIRED and entry.acquired_by == step.holder


def _done(step: Record, entry: Entry) -> Entry | None:
    """An entry after the committed call."""
    if step.kind is Kind.DEQUEUED:
        return None
    if step.kind is Kind.ACQUIRED:
        return replace(entry, acquired_by=step.holder)
    detail, count = step.detail or entry.detail, step.delivery_count or 0
    return replace(entry, acquired_by=None, delivery_count=count, detail=detail)


def _call_of(step: Record, entry: Entry) -> StoreCall:
    """The call that a record in a branch came from; `entry` is as it was before."""
    name, message_id = _place(step)
    if step.kind is Kind.DEQUEUED:
        outcome = None if step.detail is None else json.loads(step.detail)
        return DequeueCall((message_id,), name, step.holder, outcome)
    if step.kind is Kind.ACQUIRED:
        assert step.holder is not None
        return AcquireCall((message_id,), name, step.holder)
    assert entry.acquired_by is not None
    annotations = None if step.detail is None else annotations_of(step.detail)
    has_failed = (step.delivery_count or 0) > entry.delivery_count
    return ReleaseCall((message_id,), name, entry.acquired_by, has_failed, annotations)
