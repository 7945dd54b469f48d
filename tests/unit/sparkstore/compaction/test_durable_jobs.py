"""In which order the jobs make durable what they are about to rely on. No Spark runs here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from sparkstore.compaction import compact, retention, state_fold
from sparkstore.compaction.retention import HistorySegment, retain
from sparkstore.tables.delta_files import newest_version
from sparkstore.tables.marks import read_marks
from sparkstore.tables.root import Root
from tests.support.roots.damage import append

SPARK = cast("SparkSession", None)
NOW = 1 << 50


@pytest.mark.parametrize("is_killed_before", [False, True])
def test_the_state_that_says_what_is_needed_is_durable_before_a_segment_is_rewritten(
    root: Root, monkeypatch: pytest.MonkeyPatch, is_killed_before: bool
) -> None:
    """Also when a run that was killed has raised the start already."""
    marked: list[tuple[int, int]] = []

    def rewrite(*_: Any) -> None:
        marked.append((read_marks(root).versions["state"], newest_version(root.state)))

    start = 1
    if is_killed_before:
        append(root, "state")
        start = 6
    segments = [HistorySegment(0, 1, 5, 5, 0), HistorySegment(1, 6, 12, 7, 0)]
    meta = state_fold.Meta(position=9, history_start=start)
    monkeypatch.setattr(state_fold, "read_meta", lambda _root: meta)
    monkeypatch.setattr(retention, "_segments", lambda _root: segments)
    monkeypatch.setattr(retention, "_needed", lambda *_: {})
    monkeypatch.setattr(retention, "_raise_start", lambda *_: append(root, "state"))
    monkeypatch.setattr(retention, "_rewrite", rewrite)
    assert retain(SPARK, root, history_days=0.0, now=NOW, at=lambda _step: None) == 5
    newest = newest_version(root.state)
    assert marked == [(newest, newest)]


class Folded(Exception):
    """The fold was reached."""


def test_history_is_durable_before_state_says_that_it_is_folded(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut leaves a P that no record leads to."""
    marked: list[tuple[int, int]] = []

    def fold_all(*_: Any) -> None:
        marked.append((read_marks(root).versions["history"], newest_version(root.history)))
        raise Folded

    def append_to_history(*_: Any) -> SimpleNamespace:
        append(root, "history")
        return SimpleNamespace(last=12)

    monkeypatch.setattr(compact, "_append", append_to_history)
    monkeypatch.setattr(compact, "fold_all", fold_all)
    with pytest.raises(Folded):
        compact.run(SPARK, root)
    newest = newest_version(root.history)
    assert marked == [(newest, newest)]
