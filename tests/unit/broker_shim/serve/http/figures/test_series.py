"""A queue's figures over time over HTTP: from memory, from history, or both."""

from __future__ import annotations

import asyncio
import csv
import io
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count, pairwise
from pathlib import Path
from urllib.parse import urlencode

import pytest

from broker_shim.security.rules.permissions import Permission, Rule
from broker_shim.serve.http import table_reads
from broker_shim.serve.http.figures.recent_figures import KEPT, SAMPLE_S, RecentFigures
from broker_shim.serve.http.figures.series_answers import SeriesKept
from broker_shim.serve.http.refusals import HttpRefusal
from broker_shim.store.delta import DeltaMessageStore
from sparkstore.embedded.series_times import SeriesTimes
from sparkstore.jobs.job_runs import JobRun, record
from tests.support.stores.http_houses import TIMEOUT_S, HttpHouse, Reply, path_of
from tests.support.stores.stores import DELTA_CONFIG

pytestmark = pytest.mark.slow

S = 1_000_000
USERS = {"mia": ("monitor",), "ada": ("admin",)}
RULES = (
    Rule(frozenset({"mia"}), "orders", frozenset({Permission.READ})),
    Rule(frozenset({"ada"}), "#", frozenset(Permission)),
)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpHouse]:
    folder = tmp_path_factory.mktemp("house")
    slow = replace(DELTA_CONFIG, commit_interval_ms=10_000)  # who asks does not wait for a commit
    store = DeltaMessageStore(folder / "root", slow)
    it = HttpHouse(folder, USERS, RULES, store=store)
    for name in ("orders", "secret", "gone"):
        it.put_queue(name)
    it.put("orders", b"eggs", b"bread", b"milk")
    it.put("gone", b"last", b"words")
    it.ask("POST", path_of("orders", "/purge"), "ada", {"ids": [_first_id(it)]})
    it.ask("DELETE", path_of("gone") + "?force=true", "ada")
    for outcome in ("done", "failed"):
        record(store.root, JobRun(outcome, "compact", datetime.now(UTC), 0.0, outcome, {}))
    yield it
    it.stop()


def _first_id(house: HttpHouse) -> int:
    reply = house.ask("GET", path_of("orders", "/messages"), "ada")
    found: int = reply.body["items"][0]["id"]
    return found


def series(house: HttpHouse, queue: str, user: str | None = "ada", **query: object) -> Reply:
    return house.ask("GET", path_of(queue, "/series?") + urlencode(query), user)


def test_history_tells_what_came_and_left_by_how_it_did(house: HttpHouse) -> None:
    reply = series(house, "orders", step=1)
    assert reply.status == 200, reply.body
    items = reply.body["items"]
    assert items[-1]["depth"] == 2
    assert sum(item["arrived"] for item in items) == 3
    assert sum(item["departed"].get("purged", 0) for item in items) == 1
    assert items[-1]["oldest_age_s"] > 0
    assert [mark["what"] for mark in reply.body["marks"]] == ["broker started", "compacted"]
    (line,) = reply.body["left_out"]
    assert line.endswith("where history begins")


def test_the_steps_of_both_sources_are_one_series(house: HttpHouse) -> None:
    """The ring began with the broker, so a quarter of an hour is mostly history's."""
    items = series(house, "orders").body["items"]
    ends = [datetime.fromisoformat(item["at"]) for item in items]
    gaps = {(after - before).total_seconds() for before, after in pairwise(ends)}
    assert gaps <= {5.0}
    assert ends == sorted(ends)


def test_what_memory_tells_of_has_the_marks_of_compactions_too(house: HttpHouse) -> None:
    """History is asked for no step of it; a compaction that failed is none."""
    compacted = series(house, "orders", step=1).body["marks"][-1]
    reply = series(house, "orders", **{"from": compacted["at"], "step": SAMPLE_S})
    assert (reply.body["marks"], reply.body["left_out"]) == ([compacted], [])


def test_a_deleted_queue_has_its_past(house: HttpHouse) -> None:
    reply = series(house, "gone", step=1)
    items = reply.body["items"]
    assert items[-1]["depth"] == 0
    assert sum(item["departed"].get("queue destroyed", 0) for item in items) == 2


def test_the_same_as_csv(house: HttpHouse) -> None:
    reply = series(house, "orders", step=1, format="csv")
    assert reply.headers["content-type"].startswith("text/csv")
    lines = [*csv.DictReader(io.StringIO(reply.body))]
    assert sum(int(line["purged"]) for line in lines) == 1
    assert lines[-1]["depth"] == "2"


def test_who_may_read_one_queue_of_two_sees_one_series(house: HttpHouse) -> None:
    assert series(house, "orders", "mia").status == 200
    for queue in ("secret", "gone", "never"):
        reply = series(house, queue, "mia")
        assert reply.status == 403
        assert "no permission to read" in reply.body["error"]


YEAR = timedelta(days=366)
BAD: tuple[tuple[dict[str, str], str], ...] = (
    ({"from": "2026-01-01T00:00:00"}, "from has no time zone: end it with Z for UTC"),
    ({"to": "yesterday"}, "to is no time: give one such as 2026-11-22T10:00:00Z"),
    ({"step": "0"}, "'step' should be a whole number of at least 1, not \"0\""),
    ({"step": "-5"}, 'of at least 1, not "-5"'),
    ({"step": "x"}, 'should be a whole number or null, not "x"'),
    ({"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T00:00:00Z"}, "from is not before to"),
    ({"from": "2026-01-02T00:00:00Z", "to": "2026-01-01T00:00:00Z"}, "from is not before to"),
    (
        {"from": "2026-01-01T00:00:00Z", "to": "2026-01-12T13:46:40Z", "step": "1"},
        "that is 1,000,000 steps, and 2,000 are the most: give a step of 500 or more",
    ),
    ({"from": "0001-01-01T00:00:00+14:00"}, "from is too far away"),
    ({"since": "2026-01-01T00:00:00Z"}, "unknown query parameter"),
    ({"format": "xml"}, "Invalid enum value"),
)


@pytest.mark.parametrize(("query", "error"), BAD)
def test_a_wrong_question_is_refused_in_a_line(
    house: HttpHouse, query: dict[str, str], error: str
) -> None:
    reply = house.ask("GET", path_of("orders", "/series?") + urlencode(query), "ada")
    assert reply.status == 400
    assert error in reply.body["error"]


def test_the_future_is_refused_or_left_out(house: HttpHouse) -> None:
    now = datetime.now(UTC)
    assert (
        "in the future" in series(house, "orders", **{"from": f"{now + YEAR:%FT%TZ}"}).body["error"]
    )
    reply = series(house, "orders", to=f"{now + YEAR:%FT%TZ}", step=10)
    assert reply.body["left_out"][0] == "what is in the future"
    assert datetime.fromisoformat(reply.body["items"][-1]["at"]) < now + YEAR


def test_charts_do_not_need_the_table_of_jobs_and_csv_has_no_marks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = HttpHouse(tmp_path, store=DeltaMessageStore(tmp_path / "root", DELTA_CONFIG))
    try:
        it.put_queue("orders")
        monkeypatch.setattr(table_reads, "PATIENCE_S", 0.0)
        monkeypatch.setattr(table_reads, "MOST_AT_ONCE", 0)
        assert series(it, "orders", None, format="csv").body.count("\n") > 1
        reply = series(it, "orders", None)
        assert (reply.status, reply.body["items"] != []) == (200, True)
        assert reply.body["left_out"][-1] == "compactions, as their table could not be read now"
    finally:
        it.stop()


def test_all_who_ask_at_once_wait_for_one_read_and_a_failure_is_not_kept() -> None:
    async def answers() -> list[object]:
        kept, reads, may_end = SeriesKept(), count(1), asyncio.Event()

        async def read() -> int:
            number = next(reads)
            await may_end.wait()
            if number == 1:
                raise HttpRefusal(503, "not now")
            return number

        async def both() -> list[object]:
            asked = [asyncio.ensure_future(kept.lately("it", read)) for _ in range(2)]
            await asyncio.sleep(0)
            may_end.set()
            return [*await asyncio.gather(*asked, return_exceptions=True)]

        return [str(answer) for answer in [*await both(), *await both(), *await both()]]

    assert asyncio.run(answers()) == ["not now"] * 2 + ["2"] * 4


def test_a_queue_that_never_was_is_not_there(house: HttpHouse) -> None:
    reply = series(house, "never")
    assert (reply.status, "history knows of none" in reply.body["error"]) == (404, True)


def test_a_broker_without_a_root_tells_of_its_own_time(tmp_path: Path) -> None:
    it = HttpHouse(tmp_path)
    try:
        it.put_queue("orders")
        reply = it.ask("GET", path_of("orders", "/series"))
    finally:
        it.stop()
    assert reply.status == 200
    (line,) = reply.body["left_out"]
    assert line.endswith("as this broker has no root that keeps history")


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[tuple[HttpHouse, RecentFigures, Callable[[int], None]]]:
    """A ring over a broker whose samples are taken by hand, at seconds that are told."""
    it, now = HttpHouse(tmp_path), [0]
    recent = RecentFigures(lambda: it.broker, lambda _delay, _call: None, lambda: now[0])

    def look(at_s: int) -> None:
        now[0], done = at_s * S, threading.Event()
        it.loop.post(lambda: (recent.sample(), done.set()))
        assert done.wait(TIMEOUT_S)

    it.put_queue("orders")
    yield it, recent, look
    it.stop()


def test_the_ring_tells_depth_and_counts_of_each_step(
    ring: tuple[HttpHouse, RecentFigures, Callable[[int], None]],
) -> None:
    house, recent, look = ring
    look(100)
    house.put("orders", b"a", b"b")
    look(105)
    house.put("orders", b"c")
    house.ask("POST", path_of("orders", "/purge"), None, {})
    look(110)
    assert recent.begin_us("orders") == 100 * S
    assert recent.begin_us("other") is None
    items = recent.items("orders", SeriesTimes(100 * S, 111 * S, 5 * S))
    shown = [
        (item["at_us"] // S, item["depth"], item["arrived"], item["departed"]) for item in items
    ]
    assert shown == [(105, 2, 2, {}), (110, 0, 1, {"purged": 3}), (111, 0, 0, {})]


def test_the_ring_forgets_a_deleted_queue_and_what_is_too_old(
    ring: tuple[HttpHouse, RecentFigures, Callable[[int], None]],
) -> None:
    house, recent, look = ring
    house.put("orders", b"a")
    for number in range(KEPT + 10):
        look(number * SAMPLE_S)
    assert recent.begin_us("orders") == 10 * SAMPLE_S * S
    house.put_queue("late")
    look((KEPT + 10) * SAMPLE_S)
    items = recent.items("late", SeriesTimes(0, (KEPT + 11) * SAMPLE_S * S, 10 * SAMPLE_S * S))
    assert {item["depth"] for item in items} == {0}
    house.ask("DELETE", path_of("orders") + "?force=true")
    look((KEPT + 11) * SAMPLE_S)
    assert recent.begin_us("orders") is None
