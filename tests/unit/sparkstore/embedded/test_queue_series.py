"""The series of a queue: what was on it, came and left, step by step, as a replay tells it."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sparkstore.core.records import (
    Kind,
    MessageHeader,
    Record,
    ids_reserved,
    message_acquired,
    message_dequeued,
    message_enqueued,
    message_released,
    opened,
    queue_created,
    queue_destroyed,
)
from sparkstore.core.state_machine.state_machine import ID_BLOCK
from sparkstore.embedded import queue_series as series_module
from sparkstore.embedded.queue_series import DESTROYED, QueueSeries, queue_series
from sparkstore.embedded.series_times import SeriesTimes
from sparkstore.tables.root import IDS_OF_A_GENERATION, Root
from tests.support.histories.histories import History, Layers, Row
from tests.support.histories.seeds import seed
from tests.support.roots.roots import build_root

pytestmark = pytest.mark.slow

S = 1_000_000
HEADER = MessageHeader("amqp-1.0", b"h", header_bytes=1, body_bytes=3)
START = [opened(S, "w"), ids_reserved(S, 1 << 20)]


def built(folder: Path, records: list[Record], folded: int = 1) -> Root:
    rows = [Row(position, 1, record) for position, record in enumerate(records, 1)]
    return build_root(folder / "root", Layers(History(rows), folded, folded, 1, 1000))


def replayed(records: list[Record], queue: str, times: SeriesTimes) -> list[dict[str, Any]]:
    """The same by a replay of each record; times of records rise."""
    items = []
    for number in range(times.steps):
        begin_us, end_us = times.since_us + number * times.step_us, times.end_us(number)
        stays: dict[int, int] = {}
        arrived, redelivered, departed = 0, 0, Counter[str]()
        for record in records:
            if record.queue != queue or record.at >= end_us:
                continue
            is_now = record.at >= begin_us
            if record.kind is Kind.ENQUEUED:
                stays[record.message_id or 0] = record.at
                arrived += is_now
            elif record.kind is Kind.DEQUEUED:
                del stays[record.message_id or 0]
                departed["moved" if record.detail else "accepted"] += is_now
            elif record.kind is Kind.RELEASED:
                redelivered += is_now and bool(record.delivery_count)
            elif record.kind is Kind.DESTROYED:
                departed[DESTROYED] += len(stays) * is_now
                stays = {}
        oldest = min(stays.values(), default=end_us)
        items.append(
            {
                "at_us": end_us,
                "depth": len(stays),
                "oldest_age_s": (end_us - oldest) / 1e6,
                "arrived": arrived,
                "departed": dict(+departed),
                "redelivered": redelivered,
            }
        )
    return items


def drawn(chance: random.Random) -> list[Record]:
    """Messages that come to two queues, are taken in any order, fail, and are put back."""
    records = [*START, queue_created(2 * S, "q", "{}"), queue_created(2 * S, "r", "{}")]
    waiting: dict[str, dict[int, int]] = {"q": {}, "r": {}}
    at, next_id = 10 * S, 1
    for _ in range(chance.randint(5, 120)):
        at += chance.randint(1, 4 * S)
        queue = chance.choice("qr")
        there = waiting[queue]
        act = chance.random()
        if act < 0.5 or not there:
            records.append(message_enqueued(at, queue, next_id, HEADER, b"abc"))
            there[next_id] = 0
            next_id += 1
            continue
        message_id = chance.choice([*there])
        if act < 0.65:
            there[message_id] += 1
            records.append(message_acquired(at, queue, message_id, "c"))
            records.append(message_released(at, queue, message_id, there[message_id]))
            continue
        failures = there.pop(message_id)
        moved = '{"outcome":"moved","to":"r"}' if act < 0.75 else None
        records.append(message_dequeued(at, queue, message_id, None, moved))
        if chance.random() < 0.2:  # requeued: the same message comes once more
            at += 1
            records.append(message_enqueued(at, queue, message_id, HEADER.known(), None))
            there[message_id] = failures
    return records


@pytest.mark.parametrize("number", range(12))
def test_a_series_is_what_a_replay_tells(tmp_path: Path, number: int) -> None:
    chance = random.Random(f"{seed()} {number}")
    records = drawn(chance)
    root = built(tmp_path, records, folded=chance.randint(1, len(records)))
    end = records[-1].at
    since, step = chance.randint(5 * S, end), chance.randint(1, 20) * S // 2
    for times in (SeriesTimes(5 * S, end + S, 7 * S), SeriesTimes(since, end + S, step)):
        if times.steps > 2000:
            continue
        found = queue_series(root, "q", times)
        assert found.items == replayed(records, "q", times)
        assert found.left_out == []


DELETED = [
    *START,
    queue_created(2 * S, "q", "{}"),
    *(message_enqueued(n * S, "q", n, HEADER, b"abc") for n in (10, 11, 12)),
    message_dequeued(13 * S, "q", 10, "c"),
    queue_destroyed(20 * S, "q"),
]
AGAIN = [
    *DELETED,
    queue_created(30 * S, "q", "{}"),
    message_enqueued(31 * S, "q", 31, HEADER, b"abc"),
    opened(32 * S, "w2"),
]


@pytest.mark.parametrize("records", [DELETED, AGAIN])
def test_a_queue_that_was_deleted_had_what_its_deletion_took(
    tmp_path: Path, records: list[Record]
) -> None:
    root = built(tmp_path, records)
    times = SeriesTimes(5 * S, 40 * S, 5 * S)
    found = queue_series(root, "q", times)
    wanted = replayed(records, "q", times)
    for item in wanted[:3]:
        item["oldest_age_s"] = None
    assert found.items == wanted
    assert found.left_out == ["the age of the oldest before the queue was deleted"]
    assert wanted[3]["departed"] == {DESTROYED: 2}
    assert [mark["what"] for mark in found.marks] == ["broker started"] * (records is AGAIN)


def test_a_queue_that_never_was_has_no_series(tmp_path: Path) -> None:
    root = built(tmp_path, DELETED)
    assert queue_series(root, "it's", SeriesTimes(5 * S, 40 * S, S)) == QueueSeries([], [], [])


def test_times_before_history_are_left_out_and_said(tmp_path: Path) -> None:
    root = built(tmp_path, DELETED)
    found = queue_series(root, "q", SeriesTimes(-3600 * S, 40 * S, 60 * S))
    assert found.left_out == ["all before 1970-01-01 00:00:01 UTC, where history begins"]
    assert [item["at_us"] for item in found.items] == [40 * S]


def test_a_series_begins_later_where_too_many_records_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [*START, queue_created(2 * S, "q", "{}")]
    records += [message_enqueued(n * S, "q", n, HEADER, b"abc") for n in range(10, 60)]
    root = built(tmp_path, records, folded=30)
    monkeypatch.setattr(series_module, "MOST_ROWS", 30)
    found = queue_series(root, "q", SeriesTimes(5 * S, 60 * S, 5 * S))
    (line,) = found.left_out
    assert line.endswith("as more than 30 records follow: ask for less time")
    first = found.items[0]
    assert 5 * S < first["at_us"] < 60 * S
    assert first["depth"] == (first["at_us"] - 10 * S) // S


def test_the_age_is_of_some_messages_where_too_many_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [*START, queue_created(2 * S, "q", "{}")]
    records += [message_enqueued(n * S, "q", n, HEADER, b"abc") for n in range(10, 20)]
    records += [message_dequeued((n + 20) * S, "q", n, "c") for n in range(10, 20)]
    monkeypatch.setattr(series_module, "MOST_STAYS", 5)
    found = queue_series(built(tmp_path, records), "q", SeriesTimes(5 * S, 40 * S, S))
    text = "all messages but one in 2, for the age of the oldest: more than 5 left"
    assert found.left_out == [text]
    ages = {item["at_us"] // S: item["oldest_age_s"] for item in found.items}
    assert (ages[29], ages[31], ages[37]) == (19.0, 19.0, 19.0)  # of 10, 12 and 18


def test_failed_deliveries_are_reckoned_from_some_messages_where_too_many_came_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [*START, queue_created(2 * S, "q", "{}")]
    records += [message_enqueued(n * S, "q", n, HEADER, b"abc") for n in range(10, 20)]
    for n in range(10, 20):
        records.append(message_acquired((n + 20) * S, "q", n, "c"))
        records.append(message_released((n + 20) * S, "q", n, 1))
    monkeypatch.setattr(series_module, "MOST_STAYS", 5)
    found = queue_series(built(tmp_path, records), "q", SeriesTimes(5 * S, 45 * S, 5 * S))
    text = "all messages but one in 2, for failed deliveries, which are reckoned of it: more than 5"
    assert found.left_out == [f"{text} came back"]
    assert [item["redelivered"] for item in found.items] == [0] * 5 + [6, 4, 0]


def test_a_start_in_a_new_generation_is_marked_as_a_failover(tmp_path: Path) -> None:
    """Ids tell: each generation gives out its own, and a start after a kill goes on in them.

    Also where few ids are reserved at a time, as for Broker-J, and the failover is before the time
    that is asked for.
    """
    rows, few = [], 10_000
    for epoch, (generation, count) in enumerate(
        ((0, ID_BLOCK), (0, 2 * ID_BLOCK), (1, few), (1, 2 * few), (2, ID_BLOCK)), 1
    ):
        below = 1 + generation * IDS_OF_A_GENERATION + count
        for record in (opened(epoch * 10 * S, "w"), ids_reserved(epoch * 10 * S + 1, below)):
            rows.append(Row(len(rows) + 1, epoch, record))
    root = build_root(tmp_path / "root", Layers(History(rows), 4, 4, 1, 1000))
    found = queue_series(root, "q", SeriesTimes(5 * S, 50 * S, S))
    assert [(mark["at_us"] // S, mark["what"]) for mark in found.marks] == [
        (10, "broker started"),
        (20, "broker started"),
        (30, "failed over"),
        (40, "broker started"),
    ]
    later = queue_series(root, "q", SeriesTimes(35 * S, 50 * S, S))
    assert [mark["what"] for mark in later.marks] == ["broker started"]
