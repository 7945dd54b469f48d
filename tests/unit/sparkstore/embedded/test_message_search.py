"""Messages are found by subject or property, within bounds that are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkstore.core.records import (
    MessageHeader,
    Record,
    ids_reserved,
    message_enqueued,
    opened,
    queue_created,
)
from sparkstore.embedded import message_search as search_module
from sparkstore.embedded import queue_series as series_module
from sparkstore.embedded.message_search import SearchResult, SearchTerms, message_search
from sparkstore.tables.root import Root
from tests.support.histories.histories import History, Layers, Row
from tests.support.roots.roots import build_root

pytestmark = pytest.mark.slow
S = 1_000_000


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Root:
    """Twenty messages of north and south in turn, half of them in history; the last one moved."""
    records: list[Record] = [opened(S, "w"), ids_reserved(S, 1 << 20)]
    records += [queue_created(S, name, "{}") for name in ("a", "b")]
    for number in range(1, 21):
        shop = "north" if number % 2 else "south"
        header = MessageHeader("raw", b"h", subject=f"Eggs {shop}", properties=(("shop", shop),))
        records.append(message_enqueued(number * S, "a", number, header, b"x"))
    records.append(message_enqueued(30 * S, "b", 20, header.known(), b""))
    rows = [Row(position, 1, record) for position, record in enumerate(records, 1)]
    folder: Path = tmp_path_factory.mktemp("root")
    return build_root(folder / "root", Layers(History(rows), 12, 12, 1, 4))


def test_each_is_found_once_within_the_ids_that_are_asked_for(root: Root) -> None:
    found = message_search(root, SearchTerms("EGGS SOUTH", "", "", 15, 99))
    assert found == SearchResult([16, 18, 20], [])
    assert message_search(root, SearchTerms("", "shop", "south", 1, 5)).ids == [2, 4]
    assert message_search(root, SearchTerms("south", "shop", "north", 1, 99)).ids == []


def test_what_is_beyond_a_bound_is_told(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_module, "MOST_IDS", 3)
    result = message_search(root, SearchTerms("eggs", "", "", 1, 99))
    assert result == SearchResult([1, 2, 3], ["ids above 3, as 3 messages fit up to there"])
    monkeypatch.setattr(series_module, "MOST_ROWS", 8)
    result = message_search(root, SearchTerms("eggs", "", "", 1, 99))
    assert result.ids[0] > 1
    assert result.left_out[0].startswith("all that came before 1970-01-01 00:00:1")
