"""What is known of tables that stand still is what a query of them finds out."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from sparkstore.core.records import (
    Kind,
    ids_reserved,
    message_dequeued,
    message_enqueued,
    opened,
    queue_created,
)
from sparkstore.embedded import duckdb_views
from sparkstore.embedded.moment import Moment
from sparkstore.recovery.standing_tables import standing_tables
from sparkstore.sql.queries import WITHOUT_JOURNAL
from sparkstore.tables.root import Root
from tests.support.histories.bundles import bundled, drawn_history, drawn_layers
from tests.support.histories.histories import History, Layers, Row
from tests.support.histories.seeds import seed
from tests.support.histories.viewed import rows
from tests.support.roots.roots import build_root
from tests.support.spark.tables import HEADER

ASKED = ("queue_messages", "queues", "message_history", "bindings", "links")
NAMES = {"state": "state", "journal": "journal", "history": "history"}

Values = Callable[[Moment], dict[str, str]]


def answers(root: Root) -> list[list[str]]:
    """All rows of the views, but for how long ago something was."""
    return [
        sorted(
            json.dumps({**row, "oldest_age_s": 0}, default=repr, sort_keys=True)
            for row in rows(root, f"FROM {view}")
        )
        for view in ASKED
    ]


def knowing(values: Values) -> Values:
    """Values for the text of DuckDB's views, with all that can be known."""

    def known(moment: Moment) -> dict[str, str]:
        names = values(moment)
        tables = standing_tables(moment.state, moment.journal, moment.history)
        return {**names, **tables.values(names, has_contents=True)}

    return known


@pytest.mark.parametrize("number", [*range(12), None])
def test_a_query_that_knows_answers_as_one_that_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int | None
) -> None:
    """Histories with fenced writers, cut anywhere; the journal trimmed or not."""
    number = seed() if number is None else number
    chance = random.Random(number)
    history = bundled(chance, [drawn_history(chance, 40) for _ in range(chance.randint(1, 3))])
    root = build_root(tmp_path / "root", drawn_layers(chance, history))
    looked = answers(root)
    monkeypatch.setattr(duckdb_views, "_values", knowing(duckdb_views._values))
    assert answers(root) == looked, f"seed {number}"


@pytest.mark.parametrize("folded", [0, 1])
def test_content_is_elsewhere_if_a_message_moved_before_p_or_after_it(
    tmp_path: Path, folded: int
) -> None:
    records = [
        *(opened(1, "w"), ids_reserved(1, 100), queue_created(1, "q", "{}")),
        *(queue_created(1, "r", "{}"), message_enqueued(2, "q", 1, HEADER, b"abc")),
        *(message_dequeued(3, "q", 1, None), message_enqueued(3, "r", 1, HEADER.known(), None)),
    ]
    rows_of_all = [Row(position, 1, record) for position, record in enumerate(records, 1)]

    def is_elsewhere(count: int) -> bool:
        layers = Layers(
            History(rows_of_all[:count]), folded * count // 2, folded * count // 2, 1, 9
        )
        moment = duckdb_views.moment_of(build_root(tmp_path / f"{count}", layers))
        tables = standing_tables(moment.state, moment.journal, moment.history)
        return "contents_elsewhere" not in tables.values(NAMES, has_contents=True)

    assert [is_elsewhere(5), is_elsewhere(7)] == [False, True]


def test_each_thing_is_known_where_it_is_so_and_not_where_it_is_not(tmp_path: Path) -> None:
    """Folded whole, copied to history whole, in part, and not at all."""
    chance = random.Random(3)
    history = bundled(chance, [drawn_history(chance, 40) for _ in range(3)])
    last = history.last_position
    half = next(
        row.position for row in history.rows[last // 2 :] if row.record.kind is not Kind.CONTENT
    )

    def known_of(state: int, in_history: int) -> set[str]:
        layers = Layers(history, state, in_history, 1, 1000)
        root = build_root(tmp_path / f"{state}-{in_history}", layers)
        moment = duckdb_views.moment_of(root)
        tables = standing_tables(moment.state, moment.journal, moment.history)
        told = tables.values(NAMES, has_contents=True)
        assert (told["folded"], told["inhistory"]) == (str(state), str(in_history))
        return {*told} - {"folded", "inhistory", "contents_elsewhere"}

    assert known_of(last, last) == {"newhistory", *WITHOUT_JOURNAL, "epochs.sql"}
    assert known_of(half, last) == {*WITHOUT_JOURNAL, "epochs.sql"}
    assert known_of(half, half) == {"newhistory", "epochs.sql"}
    assert known_of(0, half) == {"epochs.sql"}
    assert known_of(0, 0) == {"newhistory", "epochs.sql"}
