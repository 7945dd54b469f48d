"""Streams of Spark, as the broker knows them: queries with their tickets, and tasks of sinks."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_shim.serve.http.reports.streams import streams_of
from broker_shim.store.delta import DeltaMessageStore
from tests.support.stores.http_houses import HttpHouse
from tests.support.stores.stores import DELTA_CONFIG
from tests.support.stores.tickets import Query, TicketPlace

pytestmark = pytest.mark.slow


def test_a_query_tells_its_ticket_until_all_that_it_took_is_settled(tmp_path: Path) -> None:
    place = TicketPlace(tmp_path)
    query = Query(place, maxRecordsPerTrigger=2)
    try:
        place.put("a", "b", "c")
        query.run("done")
        member = f"spark-{query.checkpoint[-1]['query']}"
        place.serviced.store.catch_up()
        rows = {row["kind"]: row for row in streams_of(place.serviced.store.root, 10)}
        assert rows["query"].pop("oldest_at")
        held = {"member": member, "queue": "q", "ticket": 1, "messages": 2}
        assert rows["query"].items() >= held.items()
        assert (rows["sink"]["member"][:11], rows["sink"]["messages"]) == ("spark-sink-", 0)
        query.run("idle")
        place.serviced.store.catch_up()
        left = streams_of(place.serviced.store.root, 10)
        assert {row["ticket"] for row in left} == {None}
    finally:
        query.kill()
        place.stop()


def test_a_broker_tells_of_no_stream_and_where_history_begins(tmp_path: Path) -> None:
    house = HttpHouse(tmp_path, store=DeltaMessageStore(tmp_path / "root", DELTA_CONFIG))
    try:
        reply = house.ask("GET", "/api/v1/streams")
        assert (reply.status, reply.body) == (
            200,
            {"items": [], "event_streams": 0, "history_begins": 1},
        )
    finally:
        house.stop()
