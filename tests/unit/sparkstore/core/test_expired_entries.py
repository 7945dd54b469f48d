"""Which entries of a queue have expired: what a walk over all of them finds, without one."""

from __future__ import annotations

import random

import pytest

from sparkstore.core.entries import NEVER, NO_EXPIRY, Columns, Entries, Entry
from sparkstore.core.entry_chunk import EntryChunk


def entry(position: int, expires_at: int | None, holder: str | None = None) -> Entry:
    return Entry(position, 0, 4, expires_at, 10, holder)


def walked(entries: Entries, now_us: int) -> set[int]:
    return {
        message_id
        for message_id, each in entries.items()
        if each.expires_at is not None and each.expires_at <= now_us and each.acquired_by is None
    }


def all_expired(entries: Entries, now_us: int) -> set[int]:
    """What is expired, taken off in turns as the broker does."""
    gone: set[int] = set()
    for _ in range(100_000):
        found = entries.expired(now_us, 250)
        assert len(found.message_ids) <= 250
        assert gone.isdisjoint(found.message_ids)
        gone.update(found.message_ids)
        for message_id in found.message_ids:
            entries.remove((message_id,))
        if found.is_all and not found.message_ids:
            return gone
    raise AssertionError("never all")


@pytest.mark.parametrize("seed", range(6))
def test_what_expires_is_found_once_whatever_happened_to_the_entries_before(seed: int) -> None:
    drawn = random.Random(seed)
    entries, now_us, position = Entries(), 0, 0
    for _ in range(12):
        for _ in range(drawn.choice([0, 10, 3000])):
            position += 1
            entries.add(
                position, entry(position, drawn.choice([None, now_us + drawn.randrange(9)]))
            )
        if drawn.random() < 0.3:
            ids = range(position + 1, position + 1500)
            ends = [drawn.choice([NEVER, now_us + drawn.randrange(9)]) for _ in ids]
            count = len(ids)
            zeros = [0] * count
            entries.extend(ids, Columns(ids, zeros, zeros, ends, zeros))
            position += count
        there = [*entries]
        for message_id in drawn.sample(there, min(len(there), 200)):
            entries.hold((message_id,), "c")
        for message_id in drawn.sample(there, min(len(there), 200)):
            entries.give_back(message_id, 1)
        for message_id in drawn.sample(there, min(len(there), 200)):
            entries.remove((message_id,))
        now_us += drawn.randrange(4)
        wanted = walked(entries, now_us)
        assert not wanted or entries.soonest <= now_us
        assert all_expired(entries, now_us) == wanted
        assert entries.soonest > now_us


def test_an_entry_that_is_held_is_found_when_it_is_given_back() -> None:
    entries = Entries()
    for message_id in range(1, 20_001):
        entries.add(message_id, entry(message_id, 5))
    for message_id in range(1, 20_001):
        entries.hold((message_id,), "c")
    assert all_expired(entries, 9) == set()
    assert entries.soonest == NO_EXPIRY
    for message_id in (7, 19_999):
        entries.give_back(message_id, 0)
        assert entries.soonest == 5
        assert all_expired(entries, 9) == {message_id}


def test_entries_that_do_not_expire_are_never_looked_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[int] = []
    real = EntryChunk.expired

    def counted(chunk: EntryChunk, now_us: int) -> list[int]:
        looks.append(chunk.number)
        return real(chunk, now_us)

    monkeypatch.setattr(EntryChunk, "expired", counted)
    entries = Entries()
    for message_id in range(1, 30_001):
        entries.add(message_id, entry(message_id, 5 if message_id <= 1024 else None))
    assert len(all_expired(entries, 9)) == 1024
    for _ in range(3):
        assert entries.expired(10, 250).message_ids == []
    assert set(looks) == {0}
