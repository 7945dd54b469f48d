"""A stream that takes messages: what it takes, what it settles, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sparkstore
from broker_shim.errors import InvalidRequest
from broker_shim.spark_tickets import TicketStreamReader, ticket_settings, ticket_store
from broker_shim.spark_tickets.message_rows import ticket_schema
from broker_shim.store.interface import Queue
from tests.support.stores.stores import done
from tests.support.stores.tickets import Query, TicketPlace


@pytest.fixture
def place(tmp_path: Path) -> Iterator[TicketPlace]:
    it = TicketPlace(tmp_path)
    yield it
    it.stop()


def test_a_batch_is_held_until_the_next_one_is_planned(place: TicketPlace) -> None:
    place.put("a", "b", "c")
    query = Query(place, maxRecordsPerTrigger=2)
    query.run("done")
    name = f"spark-{query.checkpoint[-1]['query']}"
    assert place.holders() == [f"{name}/ticket-1", f"{name}/ticket-1", None]
    query.run("logged")
    assert place.holders() == [f"{name}/ticket-2"]
    query.run()
    assert (place.holders(), query.bodies()) == ([], ["a", "b", "c"])
    row = query.sink[0][0]
    assert (row["queue"], row["ticket"], row["delivery_count"], row["durable"]) == ("q", 1, 0, True)
    query.kill()


@pytest.mark.parametrize("at", ["planned", "logged", "read", "written", "done"])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_query_that_is_killed_goes_on_with_what_it_has(
    place: TicketPlace, at: str, *, restarts: bool
) -> None:
    """The first batch before it is in the checkpoint: then nobody knows the query's name."""
    place.put("a", "b", "c", "d")
    query = Query(place, maxRecordsPerTrigger=2)
    query.run("done")
    query.run(at)
    query.kill()
    if restarts:
        place.restart()
    query.run()
    assert (query.bodies(), place.holders()) == (["a", "b", "c", "d"], [])
    assert [len(rows) for rows in query.sink.values()] == [2, 2]
    query.kill()


def test_a_store_that_starts_again_under_a_query_keeps_what_it_has(place: TicketPlace) -> None:
    place.put("a", "b", "c")
    query = Query(place, maxRecordsPerTrigger=2)
    for at in ("logged", "written", "done"):
        query.run(at)
        place.restart()
    query.run()
    place.restart()
    place.put("d")
    query.run("written")
    query.run()
    assert (query.bodies(), place.holders()) == (["a", "b", "c", "d"], [])
    query.kill()


def test_a_query_that_never_had_a_checkpoint_gives_back_by_its_lease(place: TicketPlace) -> None:
    place.put("a", "b")
    query = Query(place)
    query.run("planned")
    (holder,) = {*place.holders()}
    query.kill()
    other = Query(place)
    other.run()
    assert other.bodies() == []
    place.serviced.service._lose(str(holder).partition("/")[0])
    other.run("done")
    assert other.bodies() == ["a", "b"]
    assert [row["delivery_count"] for row in other.sink[0]] == [1, 1]
    other.kill()


def test_a_batch_whose_messages_were_given_back_is_refused(place: TicketPlace) -> None:
    place.put("a", "b")
    query = Query(place)
    query.run("logged")
    query.kill()
    place.end_lease(query)
    with pytest.raises(InvalidRequest, match=r"2 of 2 messages of ticket 1 .* its lease .600 s."):
        query.run()
    query.kill()
    going_on = Query(place, failOnDataLoss=False)
    going_on.checkpoint = query.checkpoint
    going_on.run("done")
    assert going_on.sink == {0: []}
    going_on.run("done")
    assert going_on.bodies() == ["a", "b"]
    assert going_on.reader is not None
    assert (going_on.reader.reportLatestOffset() or {})["messagesLost"] == 2
    going_on.kill()


def test_what_was_done_and_not_settled_within_the_lease_comes_again(place: TicketPlace) -> None:
    """Nobody can tell it from what no sink has: its delivery count says so."""
    place.put("a")
    query = Query(place)
    query.run("done")
    query.kill()
    place.end_lease(query)
    query.run()
    assert query.bodies() == ["a", "a"]
    assert [row["delivery_count"] for rows in query.sink.values() for row in rows] == [0, 1]
    query.kill()


def test_a_batch_that_the_sink_left_out_is_not_settled(place: TicketPlace) -> None:
    """As Delta does where a query without its checkpoint begins again under the same name."""
    place.put("a")
    query = Query(place)
    query.run()
    query.kill()
    query.lose_checkpoint(has_own_name=False)
    place.put("b", "c")
    refused = "the sink never read ticket 1, so it left out that batch of 2 messages"
    for _ in range(2):
        with pytest.raises(InvalidRequest, match=rf"{refused}.* 600 s .* new checkpointLocation"):
            query.run()
        query.kill()
        assert len(place.holders()) == 2
    going_on = Query(place, failOnDataLoss=False)
    going_on.checkpoint, going_on.done = query.checkpoint, query.done
    going_on.run()
    assert place.holders() == []
    assert going_on.reader is not None
    assert (going_on.reader.reportLatestOffset() or {})["messagesLost"] == 2
    going_on.kill()


def test_a_ticket_that_an_earlier_release_took_is_settled_unseen(place: TicketPlace) -> None:
    place.put("a")
    query = Query(place)
    query.run("logged")
    assert query.checkpoint[0].pop("noted") is True
    query.sink[0] = []
    query.run()
    assert place.holders() == []
    query.kill()


@pytest.mark.parametrize("is_done", [True, False])
def test_a_checkpoint_that_was_put_back_is_refused(place: TicketPlace, *, is_done: bool) -> None:
    place.put("a", "b", "c")
    query = Query(place, maxRecordsPerTrigger=1)
    query.run()
    query.kill()
    query.checkpoint, query.done = query.checkpoint[:2], 1 + is_done
    place.put("d")
    refused = "ends at ticket 2, and the query has read ticket 3: it is an old copy"
    with pytest.raises(InvalidRequest, match=refused):
        query.run()
    assert place.holders() == [None]
    query.kill()


def test_a_new_query_is_told_what_another_one_holds(
    place: TicketPlace, caplog: pytest.LogCaptureFixture
) -> None:
    place.put("a", "b")
    first = Query(place, maxRecordsPerTrigger=1)
    first.run("done")
    first.run("logged")
    first.kill()
    second = Query(place)
    second.run()
    holder = f"1 of spark-{first.checkpoint[0]['query']}/ticket-2"
    (told,) = [record.getMessage() for record in caplog.records if holder in record.getMessage()]
    assert told.startswith("a new query takes from queue 'q', of which other queries hold messages")
    assert second.reader is not None
    assert (second.reader.reportLatestOffset() or {})["messagesOfOtherQueries"] == 1
    second.kill()


def test_the_lease_is_kept_with_the_query(place: TicketPlace) -> None:
    place.put("a")
    query = Query(place, leaseSeconds=77)
    query.run("logged")
    name = f"spark-{query.checkpoint[-1]['query']}"
    grace = place.serviced.service._timers.grace
    assert grace._leases[name] == 77
    query.kill()
    place.restart()
    assert place.serviced.service._timers.grace._leases == {name: 77}
    query.kill()


def test_messages_come_by_priority_as_selected_and_within_limits(tmp_path: Path) -> None:
    place = TicketPlace(tmp_path)
    place.put("low", priority=1)
    place.put("high", "high too", priority=8)
    place.put("other", priority=9, subject="no")
    query = Query(place, selector="amqp.subject IS NULL", maxRecordsPerTrigger=2)
    query.run()
    assert query.bodies() == ["high", "high too", "low"]
    assert [entry.acquired_by for entry in place.entries().values()] == [None]
    query.kill()
    place.put(*["x" * 600] * 4)
    some = Query(place, selector="amqp.subject IS NULL", maxBytesPerTrigger=1000)
    some.run()
    assert [len(rows) for rows in some.sink.values()] == [4]  # in steps of up to 1,000 messages
    some.kill()
    place.stop()


def test_one_that_fails_too_often_is_dead(tmp_path: Path) -> None:
    place = TicketPlace(tmp_path, max_delivery_count=1, dead_letter_queue="dead")
    done(place.serviced.store.create, Queue("dead"))
    place.put("poison")
    for _ in range(2):
        query = Query(place)
        query.run("logged")
        query.kill()
        place.end_lease(query)
    last = Query(place)
    last.run()
    assert last.bodies() == []
    dead = place.serviced.store.recover().entries["dead"]
    assert len(dead) == 1
    last.kill()
    place.stop()


def test_a_run_of_what_is_there_ends(place: TicketPlace) -> None:
    place.put("a", "b", "c")
    query = Query(place, maxRecordsPerTrigger=2)
    query.is_available_now = True
    query.run("done")
    place.put("late")
    query.run()
    assert query.bodies() == ["a", "b", "c"]
    query.kill()


def test_messages_that_are_not_durable_end_with_the_store(place: TicketPlace) -> None:
    place.put("durable")
    place.put("transient", durable=False)
    query = Query(place)
    query.run("logged")
    assert query.checkpoint[-1]["kept"] == 1
    query.kill()
    place.restart()
    query.run("done")
    assert query.bodies() == ["durable"]
    query.kill()


def test_content_that_did_not_come_along_is_loaded(place: TicketPlace) -> None:
    place.put("small", "x" * 100_000)
    query = Query(place)
    query.run("done")
    assert sorted(map(len, query.bodies())) == [5, 100_000]
    query.kill()


@pytest.mark.parametrize("most", [3, 8, 13, 50])
def test_what_is_asked_for_step_by_step_is_all_there_is(
    place: TicketPlace, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Whether the last step is whole, or no more waits in the midst of one."""
    monkeypatch.setattr(ticket_store, "_AHEAD_RECORDS", 4)
    for count in (1, 4, 5, 8, 12, 13):
        sent = [f"{count}-{number}" for number in range(count)]
        place.put(*sent)
        query = Query(place, maxRecordsPerTrigger=most)
        query.run()
        assert query.bodies() == sent
        assert max(map(len, query.sink.values())) == min(most, count)
        query.kill()


def test_views_show_who_has_a_message(place: TicketPlace) -> None:
    place.put("a")
    query = Query(place)
    query.run("logged")
    done(place.serviced.store.flush)
    told = sparkstore.query(place.path / "root", "SELECT acquired_by FROM queue_messages")
    assert told["acquired_by"].to_pylist() == [f"spark-{query.checkpoint[-1]['query']}/ticket-1"]
    query.kill()


def test_a_queue_that_is_destroyed_ends_the_query(place: TicketPlace) -> None:
    place.put("a")
    query = Query(place)
    query.run("done")
    done(place.serviced.store.destroy, Queue("q"))
    with pytest.raises(InvalidRequest, match="queue 'q' was destroyed"):
        query.run()
    query.kill()


def test_a_checkpoint_of_another_place_is_refused(place: TicketPlace, tmp_path: Path) -> None:
    place.put("a")
    query = Query(place)
    query.run("done")
    query.kill()
    other = TicketPlace(tmp_path / "other")
    done(other.serviced.store.create, Queue("p"))
    moved = Query(other)
    moved.checkpoint, moved.done = query.checkpoint, query.done
    with pytest.raises(InvalidRequest, match=r"the checkpoint is of root .* checkpointLocation"):
        moved.run()
    moved.kill()
    own = other.serviced.store.root.identity.root_id
    renamed = Query(other, queue="p")
    renamed.checkpoint, renamed.done = [{**query.checkpoint[0], "root": own}], 1
    with pytest.raises(InvalidRequest, match=r"the checkpoint is of queue 'q', and .* 'p'"):
        renamed.run()
    renamed.kill()
    events = Query(other)
    events.checkpoint, events.done = [{"root": own, "position": 1, "epoch": 1, "at": 1}], 1
    with pytest.raises(InvalidRequest, match="which no stream with settle = true wrote"):
        events.run()
    other.stop()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"queue": ""}, "needs the option queue"),
        ({"queue": "none"}, "there is no queue 'none'"),
        ({"socket": ""}, r"give the option path .the root. or socket"),
        ({"selector": "a ="}, "option selector: "),
        ({"settle": "yes"}, "option settle cannot be 'yes': give true or false"),
        ({"leaseSeconds": "0"}, "option leaseSeconds cannot be '0': give a number from 1"),
        ({"leaseSeconds": "604801"}, "a lease is 1 to 604800 seconds"),
        ({"maxRecordsPerTrigger": "all"}, "option maxRecordsPerTrigger cannot be 'all'"),
        ({"waitSeconds": "soon"}, "option waitSeconds cannot be 'soon'"),
        ({"columns": "bodies"}, "bodies"),
        ({"kind": "enqueued"}, "option kind"),
        ({"startingPosition": "latest"}, "option startingPosition"),
        ({"selectr": "a"}, "is selector meant?"),
        ({"view": "queues"}, "option view"),
    ],
)
def test_an_option_that_cannot_be_is_refused(
    place: TicketPlace, options: dict[str, Any], why: str
) -> None:
    def begin() -> None:
        settings = ticket_settings(place.options(**options))
        if options.get("settle") == "yes":
            from sparkstore.spark_source.options import is_taking  # noqa: PLC0415

            is_taking(place.options(**options))
        TicketStreamReader(settings, ticket_schema(settings)).initialOffset()

    with pytest.raises(InvalidRequest, match=why):
        begin()
