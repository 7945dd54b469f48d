"""Streams of Spark, as the broker knows them: queries with their tickets, and tasks of sinks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, closing
from pathlib import Path

import pytest

from broker_shim.serve.http.reports.streams import streams_of
from broker_shim.serve.http.resources.events import OpenStreams, counted
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import Queue
from broker_shim.store.remote.greeting import MemberIdentity
from broker_shim.store.remote.remote_store import RemoteMessageStore
from tests.support.stores.http_houses import HttpHouse
from tests.support.stores.stores import DELTA_CONFIG, done
from tests.support.stores.tickets import Query, TicketPlace

pytestmark = pytest.mark.slow


def _do_as(place: TicketPlace, member: str) -> None:
    """Have a member do something, so that the tables have it."""
    with closing(RemoteMessageStore(place.serviced.path, MemberIdentity(member, "i"))) as it:
        done(it.create, Queue(member))


def test_a_query_tells_its_ticket_until_all_that_it_took_is_settled(tmp_path: Path) -> None:
    place = TicketPlace(tmp_path)
    query = Query(place, maxRecordsPerTrigger=2)
    try:
        place.put("a", "b", "c")
        query.run("done")
        member = f"spark-{query.checkpoint[-1]['query']}"
        place.serviced.store.catch_up()
        rows = {row["kind"]: row for row in streams_of(place.serviced.store.root, 10)[0]}
        assert rows["query"].pop("oldest_at")
        held = {"member": member, "queue": "q", "ticket": 1, "messages": 2}
        assert rows["query"].items() >= held.items()
        assert (rows["sink"]["member"][:11], rows["sink"]["messages"]) == ("spark-sink-", 0)
        query.run("idle")
        place.serviced.store.catch_up()
        left, _ = streams_of(place.serviced.store.root, 10)
        assert {row["ticket"] for row in left} == {None}
    finally:
        query.kill()
        place.stop()


def test_a_member_or_holder_that_is_only_named_like_a_query_is_none(tmp_path: Path) -> None:
    place = TicketPlace(tmp_path)
    try:
        place.put("a", "b", "c")
        store, query = place.serviced.store, f"spark-{'0' * 32}"
        holders = "spark-1/a/ticket-7", "spark-1/ticket-7", f"{query}/ticket-{'9' * 30}"
        for message_id, holder in zip(place.entries(), holders, strict=True):
            done(store.acquire, message_id, "q", holder)
        _do_as(place, "spark-1")
        store.catch_up()
        rows, left_out = streams_of(store.root, 10)
        assert [(row["member"], row["ticket"], row["messages"]) for row in rows] == [
            (query, None, 1)
        ]
        assert left_out == 0
    finally:
        place.stop()


def test_a_list_that_is_cut_has_the_newest_and_tells_how_many_it_leaves_out(tmp_path: Path) -> None:
    place = TicketPlace(tmp_path)
    names = [f"spark-sink-{number:08x}" for number in range(3)]
    try:
        for name in names:
            _do_as(place, name)
        place.serviced.store.catch_up()
        rows, left_out = streams_of(place.serviced.store.root, 2)
        assert ([row["member"] for row in rows], left_out) == (names[:0:-1], 1)
    finally:
        place.stop()


def test_a_broker_tells_of_no_stream_and_where_history_begins(tmp_path: Path) -> None:
    house = HttpHouse(tmp_path, store=DeltaMessageStore(tmp_path / "root", DELTA_CONFIG))
    try:
        reply = house.ask("GET", "/api/v1/streams")
        assert (reply.status, reply.body) == (
            200,
            {"items": [], "left_out": 0, "event_streams": 0, "history_begins": 1},
        )
    finally:
        house.stop()


def test_an_export_is_no_reader_of_events() -> None:
    async def parts() -> AsyncGenerator[bytes, None]:
        yield b"1"

    async def counts() -> list[int]:
        export, events = counted(parts()), counted(parts(), events=1)
        seen = []
        async with aclosing(export), aclosing(events):
            for stream in (export, events):
                await anext(stream)
                seen.append(OpenStreams.events)
        return [*seen, OpenStreams.events]

    assert asyncio.run(counts()) == [0, 1, 0]
