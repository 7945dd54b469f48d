"""Content that the log took is at hand while it is in memory, wherever it came from."""

from __future__ import annotations

from pathlib import Path

from sparkstore.content.reader import ContentReader
from sparkstore.core.records import MessageHeader, message_enqueued
from sparkstore.log.log_metrics import LogMetrics
from sparkstore.log.logged_content import LoggedContent
from sparkstore.log.recent_content import RecentContent
from sparkstore.tables.root import open_or_create_root
from tests.support.histories.strategies import Row
from tests.support.roots.roots import append_journal


def test_what_a_load_read_ahead_is_at_hand_for_who_comes_next(tmp_path: Path) -> None:
    root = open_or_create_root(tmp_path / "root")
    header = MessageHeader(body_bytes=4)
    rows = [Row(id_, 1, message_enqueued(0, "q", id_, header, b"body")) for id_ in (1, 2)]
    append_journal(root, rows, 0, 0)
    logged = LoggedContent(RecentContent(0), ContentReader(root), lambda _: None, LogMetrics())
    assert logged.at_hand([1, 2]) == {}
    logged.load(1)
    found = logged.at_hand([2, 3])
    assert [*found] == [2]
    assert (found[2][0].body_bytes, found[2][1]) == (4, b"body")
