"""The calls that make one store alike to another one. Pure.

Both are `BrokerStore`s, seen as `recover` tells them. The one that follows got every call that the
other completed, in order, but for the last ones before a crash, or since it was dropped. So most
of its entries are those of the other, in the same order from the beginning on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from broker_shim.store.chain.branches_in_doubt import (
    NOBODY,
    Branches,
    MissingBranch,
    after,
    before,
    decisions,
    missing_branch,
    same_branches,
)
from broker_shim.store.interface import Entry, Exchange, ExchangeBindingKey, Queue, Recovered
from sparkstore.core.annotations import annotations_of, are_alike
from sparkstore.core.state_machine.call_values import (
    AcquireCall,
    AlterCall,
    AttachCall,
    BindCall,
    ConfigureCall,
    CreateCall,
    DequeueCall,
    DestroyCall,
    DetachCall,
    ReleaseCall,
    SettleCall,
    StoreCall,
    UnbindCall,
    UnsettledCall,
)

CATEGORY = "store-chain"
"""Of configuration objects that each store of a chain keeps for itself."""


class Missing(NamedTuple):
    """A message that is on a queue of the other store: to be loaded there and enqueued here."""

    message_id: int
    queue: str
    entry: Entry


_NONE: Branches = MappingProxyType({})


def difference(
    ours: Recovered,
    theirs: Recovered,
    our_branches: Branches = _NONE,
    their_branches: Branches = _NONE,
) -> Iterator[StoreCall | Missing | MissingBranch]:
    """Find the calls, in order, that make `theirs` hold all of `ours` and nothing else.

    Branches that `theirs` alone has in doubt are decided first (`branches_in_doubt`), so that
    nothing is held that is to be changed. Those that it lacks are prepared last, when what they
    hold is there.
    """
    exchanges, queues = _anew(ours.exchanges, theirs.exchanges), _anew(ours.queues, theirs.queues)
    kept = {name: its for name, its in theirs.entries.items() if name not in queues}
    same = same_branches(our_branches, their_branches, (ours.entries, kept), _kept)
    decided = {xid: steps for xid, steps in their_branches.items() if xid not in same}
    lacked = {xid: steps for xid, steps in our_branches.items() if xid not in same}
    yield from decisions(decided, ours.entries)
    theirs = replace(theirs, entries=after(theirs.entries, ours.entries, decided))
    ours = replace(ours, entries=before(ours.entries, lacked))

    def is_of_new(key: ExchangeBindingKey) -> bool:
        return key.exchange in exchanges or key.queue in queues

    yield from _definitions(ours, theirs, is_of_new)
    for queue, entries in ours.entries.items():
        existing = {} if queue in queues else theirs.entries.get(queue, {})
        yield from _entries(queue, entries, existing)
    yield from _links(ours, theirs)
    for xid, steps in lacked.items():
        yield missing_branch(xid, steps, ours.entries)


def _definitions(
    ours: Recovered, theirs: Recovered, is_of_new: Callable[[ExchangeBindingKey], bool]
) -> Iterator[StoreCall]:
    for gone in set(theirs.bindings) - set(ours.bindings):
        yield UnbindCall(gone)
    yield from _declared(ours.exchanges, theirs.exchanges)
    yield from _declared(ours.queues, theirs.queues)
    for binding, arguments in ours.bindings.items():
        before = None if is_of_new(binding) else theirs.bindings.get(binding)
        if before != arguments:
            if before is not None:
                yield UnbindCall(binding)
            yield BindCall(binding, arguments)
    for category, key in {**ours.configured, **theirs.configured}:
        detail = ours.configured.get((category, key))
        if category != CATEGORY and detail != theirs.configured.get((category, key)):
            yield ConfigureCall(category, key, detail)


def _declared(
    ours: Sequence[Queue] | Sequence[Exchange], theirs: Sequence[Queue] | Sequence[Exchange]
) -> Iterator[StoreCall]:
    by_name = {row.name: row for row in theirs}
    for gone in set(by_name) - {row.name for row in ours}:
        yield DestroyCall(by_name[gone])
    for wanted in ours:
        before = by_name.get(wanted.name)
        if before == wanted:
            continue
        if isinstance(wanted, Queue) and not _is_another(wanted, before):
            yield AlterCall(wanted)
            continue
        if before is not None:
            yield DestroyCall(before)
        yield CreateCall(wanted)


def _is_another(wanted: Queue | Exchange, existing: Queue | Exchange | None) -> bool:
    """Whether a queue or exchange was made anew: more has changed than can be altered."""
    if existing is None or isinstance(wanted, Exchange):
        return wanted != existing
    return wanted.durability != existing.durability


def _anew(ours: Sequence[Queue | Exchange], theirs: Sequence[Queue | Exchange]) -> set[str]:
    """Name what is there with another definition: it is destroyed and created."""
    by_name = {row.name: row for row in theirs}
    return {row.name for row in ours if row.name in by_name and _is_another(row, by_name[row.name])}


def _entries(
    queue: str, ours: Mapping[int, Entry], theirs: Mapping[int, Entry]
) -> Iterator[StoreCall | Missing]:
    """Put all on the queue anew, from the first place on where the order differs.

    It differs where a message left the queue and came back to its end.
    """
    kept = _kept(ours, theirs)
    for message_id, entry in theirs.items():
        if message_id not in kept:
            yield DequeueCall((message_id,), queue, entry.acquired_by)
    for message_id, entry in ours.items():
        if message_id not in kept:
            yield Missing(message_id, queue, entry)
        yield from _held(
            queue, message_id, entry, theirs[message_id] if message_id in kept else _NEW
        )


def _kept(ours: Mapping[int, Entry], theirs: Mapping[int, Entry]) -> set[int]:
    """Find the entries that can stay where they are."""
    kept: set[int] = set()
    in_both = (message_id for message_id in theirs if message_id in ours)
    for wanted, actual in zip(ours, in_both, strict=False):
        if wanted != actual or _is_later(theirs[actual], ours[wanted]):
            break
        kept.add(actual)
    return kept


def _is_later(theirs: Entry, ours: Entry) -> bool:
    """Whether an entry cannot become ours any more: ours is a new one of the same message."""
    was_given_back = theirs.detail is not None and ours.detail is None
    return was_given_back or theirs.delivery_count > ours.delivery_count


def _held(queue: str, message_id: int, ours: Entry, theirs: Entry) -> Iterator[StoreCall]:
    """Give an entry the holder, the count of failed deliveries and the annotations of ours."""
    holder, failures, detail = theirs.acquired_by, theirs.delivery_count, theirs.detail
    if are_alike(ours.detail, detail):
        detail = ours.detail
    while failures < ours.delivery_count or detail != ours.detail:
        if holder is None:
            yield AcquireCall((message_id,), queue, NOBODY)
        is_failure = failures < ours.delivery_count
        failures += is_failure
        annotations = annotations_of(ours.detail)
        yield ReleaseCall((message_id,), queue, holder or NOBODY, is_failure, annotations)
        holder, detail = None, ours.detail
    if holder != ours.acquired_by:
        if holder is not None:
            yield ReleaseCall((message_id,), queue, holder, delivery_failed=False)
        if ours.acquired_by is not None:
            yield AcquireCall((message_id,), queue, ours.acquired_by)


_NEW = Entry(0, 0, 0, None, 0)
"""As a message that was just enqueued: nobody has it, and it has not failed."""


def _links(ours: Recovered, theirs: Recovered) -> Iterator[StoreCall]:
    for key in set(theirs.links) - set(ours.links):
        yield DetachCall(key, closed=True)
    for key, detail in ours.links.items():
        before = theirs.links.get(key)
        if before != detail:
            yield AttachCall(key, detail)
        remembered = ours.unsettled.get(key, {})
        states = theirs.unsettled.get(key, {}) if before is not None else {}
        if before is not None and before.get("durability") != detail.get("durability"):
            states = {}
        gone = [tag for tag in states if tag not in remembered]
        if gone:
            yield SettleCall(key, gone)
        for tag, state in remembered.items():
            if tag not in states or states[tag] != state:
                yield UnsettledCall(key, tag, state)
