"""Notebooks that need no JVM run from their first cell to their last, on real roots and brokers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from sparkstore.core.records import (
    Record,
    ids_reserved,
    message_acquired,
    message_dequeued,
    message_enqueued,
    message_released,
    opened,
    queue_created,
)
from sparkstore.tables.root import open_or_create_root
from tests.support.notebooks import run_notebook
from tests.support.spark.tables import HEADER, journal

pytestmark = pytest.mark.slow


def _life(message_id: int, at: int, end: Record | None) -> list[Record]:
    header = HEADER._replace(properties=(("carrier", "UA"),))
    events = [message_enqueued(at, "late", message_id, header, b"abc")]
    if end is not None:
        events += [message_acquired(at + 2_000, "late", message_id, "anna"), end]
    return events


def test_latency_tells_how_long_messages_waited_and_why_they_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = open_or_create_root(tmp_path / "root")
    rejected = json.dumps({"outcome": "rejected", "reason": "no such flight"})
    journal(
        root,
        [
            opened(1, "w"),
            ids_reserved(1, 100),
            queue_created(1, "late", "{}"),
            *_life(1, 10_000, message_dequeued(14_000, "late", 1, "anna")),
            *_life(2, 20_000, message_dequeued(28_000, "late", 2, "anna", rejected)),
            *_life(3, 30_000, message_released(33_000, "late", 3, 1)),
        ],
    )
    lake = tmp_path / "carriers"
    write_deltalake(lake, pa.table({"carrier": ["UA"], "name": ["United Air Lines"]}))
    monkeypatch.setenv("SPARKSTORE_ROOT", str(root.path))
    monkeypatch.setenv("LAKE_TABLE", str(lake))
    shown = run_notebook("latency")
    assert shown.count("image/png") == 1
    by_hour = next(line for line in shown.splitlines() if "1970-01-01 00:00:00" in line)
    figures = [cell.strip() for cell in by_hour.strip("│").split("│")]
    assert figures[0] == "late"
    assert figures[2:] == ["3", "1", "2.0", "2.0", "6.0", "8.0"]
    for reason in ("accepted", "no such flight", "sent back"):
        assert reason in shown
    assert "United Air Lines" in shown


def test_poison_finds_two_of_twelve_moves_one_and_replays_the_other() -> None:
    shown = run_notebook("poison")
    assert "10 orders worked on, 8 deliveries failed" in shown
    assert shown.count("4 dequeued orders") == 2
    assert "'x-opt-death-reason': 'over-delivered'" in shown
    assert "dry_run  true\ncount    1" in shown
    assert len(re.findall(r"done +1\n", shown)) == 3  # moved, purged, replayed
    assert "order=9 sparkstore.replayed=" in shown
    assert "exit code 0" in shown


def test_durability_keeps_what_each_tier_promises_over_kill_9() -> None:
    shown = run_notebook("durability")
    _before, killed, after = shown.partition("exit code -9")
    assert killed
    there = [line.split()[0] for line in after.splitlines() if "  0  -" in line.rstrip()]
    bodies = [{"queue": "unsettled-state", "body": f"{number}"} for number in range(0, 10, 2)]
    assert str(bodies) in after
    assert "again: 0 deliveries before: 1" in after
    assert there == ["configuration", "unsettled-state"]
    assert not [line for line in after.splitlines() if line.startswith("broken")]
