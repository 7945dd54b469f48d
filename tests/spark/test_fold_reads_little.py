"""A fold reads and rewrites only the blocks of `state` that it changes, so cost follows them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sparkstore.compaction import compact
from sparkstore.core.records import (
    ids_reserved,
    message_dequeued,
    message_enqueued,
    opened,
    queue_created,
)
from sparkstore.tables.root import Root
from sparkstore.tables.schema import BLOCK_IDS
from tests.support.spark.tables import HEADER, journal, stored

IDS = [1, 2, BLOCK_IDS, BLOCK_IDS + 1, 5 * BLOCK_IDS, 5 * BLOCK_IDS + 7]


def _files(root: Root) -> dict[str, str]:
    """The part, or for an entry the block, that each file of `state` holds."""
    actions = DeltaTable(str(root.state)).get_add_actions(flatten=True)
    names = ("path", "partition.part", "partition.block")
    rows = zip(*(actions.column(name).to_pylist() for name in names), strict=True)
    return {path: part if block is None else str(block) for path, part, block in rows}


def _removed(root: Root) -> set[str]:
    """The files that the newest commit of `state` rewrote, from its log."""
    newest = max((root.state / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for line in newest.read_text().splitlines()]
    return {action["remove"]["path"] for action in actions if "remove" in action}


class _TakenAway:
    """While a fold runs, whoever opens one of these files fails."""

    def __init__(self, paths: list[Path]) -> None:
        self._paths = paths

    def __call__(self, boundary: str) -> None:
        for path in self._paths:
            away = path.with_suffix(".away")
            if boundary == "fold started":
                path.rename(away)
            elif boundary == "folded":
                away.rename(path)


@pytest.mark.slow
def test_a_fold_opens_and_rewrites_only_the_blocks_that_it_changes(
    spark: SparkSession, root: Root
) -> None:
    start = [opened(1, "w"), ids_reserved(1, 10 * BLOCK_IDS), queue_created(1, "q", "{}")]
    last = journal(root, [*start, *(message_enqueued(2, "q", n, HEADER, b"abc") for n in IDS)])
    compact.run(spark, root)
    files = _files(root)
    assert sorted(files.values()) == sorted({*(str(n // BLOCK_IDS) for n in IDS), "meta", "wiring"})
    changes = [
        message_dequeued(3, "q", BLOCK_IDS, None),
        message_enqueued(3, "q", 7 * BLOCK_IDS, HEADER, b"abc"),
    ]
    journal(root, changes, first=last + 1)
    needed = {path for path, place in files.items() if place in {"1", "meta"}}
    others = [root.state / path for path in files.keys() - needed]
    compact.run(spark, root, at=_TakenAway(others))
    assert _removed(root) == needed
    expected = sorted({*IDS, 7 * BLOCK_IDS} - {BLOCK_IDS})
    assert sorted(key[1] for key in stored(root)[1]) == expected
