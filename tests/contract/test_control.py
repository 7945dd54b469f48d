"""What every `AdminClient` promises: a broker's, a store service's, and that of a root at rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sparkstore.core.annotations import Death, annotations_of, origin_of, with_death
from sparkstore.core.records import MessageHeader
from sparkstore.errors import InvalidRequest
from sparkstore.operations.bulk import MAX_IDS, Action, Answer, MessageDraft, Request
from sparkstore.operations.placement import Placement, PlacementRequest
from tests.support.stores.controls import HEADER, Place

MOVE, PURGE, REQUEUE, RELEASE, DEAD_LETTER, REDRIVE = Action
LONG_AGO_US = 1_000_000
FIRST_OF_THE_SECOND_BLOCK = 100_001
"""The message id that an opening begins with after one block was reserved."""


@dataclass
class Queues:
    """A place with two queues, and what is on `q`."""

    place: Place
    ids: list[int]


@pytest.fixture(params=["served", "at rest", "service"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    is_service = request.param == "service"
    is_served = is_service or request.param == "served"
    it = Place(tmp_path / "root", is_served=is_served, by_service=is_service)
    yield it
    it.close()


@pytest.fixture
def queues(place: Place) -> Queues:
    place.create("q")
    place.create("other")
    return Queues(place, place.put("q", count=4))


def test_a_move_keeps_ids_order_and_content(queues: Queues) -> None:
    place, ids = queues.place, queues.ids
    [there] = place.put("other")
    answer = place.control.run(Request(MOVE, "q", tuple(ids[1:3]), "other"))
    assert answer == Answer(done=2)
    after = place.after()
    assert after.ids("q") == [ids[0], ids[3]]
    assert after.ids("other") == [there, ids[1], ids[2]]
    assert after.body(ids[2]) == b"body 2"
    assert after.reader.read(ids[2])[0].subject == "eggs"


def test_what_is_acquired_is_left_and_what_is_gone_is_counted(queues: Queues) -> None:
    place, ids = queues.place, queues.ids
    place.hold("q", ids[0])
    answer = place.control.run(Request(MOVE, "q", (*ids, 999_999), "other"))
    assert answer == Answer(done=3, left=1, gone=1)
    assert place.after().ids("other") == ids[1:]


def test_a_request_that_is_made_again_does_nothing_more(queues: Queues) -> None:
    place, ids = queues.place, queues.ids
    request = Request(MOVE, "q", tuple(ids), "other")
    assert place.control.run(request).done == 4
    assert place.control.run(request) == Answer(gone=4)
    assert place.after().ids("other") == ids


def test_an_id_that_is_named_twice_is_moved_once(queues: Queues) -> None:
    place, ids = queues.place, queues.ids
    assert place.control.run(Request(MOVE, "q", (ids[0], ids[0]), "other")) == Answer(done=1)


def test_a_message_that_the_target_has_only_leaves(queues: Queues) -> None:
    place = queues.place
    [both] = place.put("q", "other")
    assert place.control.run(Request(MOVE, "q", (both,), "other")) == Answer(done=1)
    after = place.after()
    assert after.ids("other") == [both]
    assert both not in after.ids("q")


def test_a_message_may_move_back(queues: Queues) -> None:
    place, ids = queues.place, queues.ids
    place.control.run(Request(MOVE, "q", (ids[0],), "other"))
    assert place.control.run(Request(MOVE, "other", (ids[0],), "q")) == Answer(done=1)
    assert place.after().ids("q") == [*ids[1:], ids[0]]


def test_requeue_puts_messages_last_with_delivery_count_0(queues: Queues) -> None:
    place, ids = queues.place, queues.ids
    place.fail("q", ids[0], times=3)
    assert place.control.run(Request(REQUEUE, "q", tuple(ids[:2]))) == Answer(done=2)
    after = place.after()
    assert after.ids("q") == [*ids[2:], *ids[:2]]
    assert after.state.queues["q"].entries[ids[0]].delivery_count == 0
    assert after.state.messages[ids[0]] == 1
    assert after.body(ids[0]) == b"body 0"


def test_purge_takes_messages_off_for_good(queues: Queues) -> None:
    place, ids = queues.place, queues.ids
    assert place.control.run(Request(PURGE, "q", (*ids[:3], ids[0]))) == Answer(done=3)
    after = place.after()
    assert after.ids("q") == ids[3:]
    assert ids[0] not in after.state.messages


@pytest.mark.parametrize("arguments", [{"dead_letter_queue": "dead"}, {}])
def test_only_a_message_that_may_not_stay_is_dead_lettered(
    place: Place, arguments: dict[str, str]
) -> None:
    place.create("q", max_delivery_count=2, **arguments)
    [fine, failed, expired] = [
        *place.put("q", count=2),
        *place.put("q", header=HEADER._replace(expires_at=LONG_AGO_US)),
    ]
    place.fail("q", fine, times=2)
    place.fail("q", failed, times=3)
    answer = place.control.run(Request(DEAD_LETTER, "q", (fine, failed, expired)))
    # A broker ends what failed too often at its start, and is done with that or about to be.
    assert answer.done == (1 if place.is_served else 2)
    assert sum(answer) == 3
    after = place.after()
    assert after.ids("q") == [fine]
    assert ("dead" in after.state.queues) == bool(arguments)
    if arguments:
        assert after.ids("dead") == [failed, expired]
        entry = after.state.queues["dead"].entries[expired]
        assert (entry.expires_at, entry.delivery_count) == (None, 0)


def test_a_target_limits_the_time_to_live(place: Place) -> None:
    place.create("q")
    place.create("short", message_ttl_ms=60_000)
    forever, soon = place.put("q"), place.put("q", header=HEADER._replace(expires_at=LONG_AGO_US))
    place.control.run(Request(MOVE, "q", (*forever, *soon), "short"))
    entries = place.after().state.queues["short"].entries
    assert entries[forever[0]].expires_at == entries[forever[0]].at + 60_000_000
    assert entries[soon[0]].expires_at == LONG_AGO_US


def test_put_makes_new_messages_of_any_size(queues: Queues) -> None:
    place = queues.place
    header = MessageHeader("raw", b"\x00\xff", priority=7, properties=(("a", "1"), ("a", "2")))
    large = bytes(range(256)) * (1 << 13) + b"end"
    assert (
        place.control.put("q", [MessageDraft(header, b""), MessageDraft(header, b"two")]).done == 2
    )
    assert place.control.put("q", [MessageDraft(header, large)]).done == 1
    after = place.after()
    first, second, third = after.ids("q")[4:]
    assert [after.body(first), after.body(second)] == [b"", b"two"]
    found, body = after.reader.read(third)
    assert body == large
    assert (found.header, found.priority, found.properties) == (
        header.header,
        header.priority,
        header.properties,
    )
    assert after.state.next_message_id > third


def test_content_that_came_in_pieces_is_read_whole_after_a_move(queues: Queues) -> None:
    """The row that puts it on another queue has a short header, which is not its own."""
    place = queues.place
    large = b"x" * (3 << 20)
    place.control.put("q", [MessageDraft(HEADER, large)])
    message_id = FIRST_OF_THE_SECOND_BLOCK
    assert place.control.run(Request(MOVE, "q", (message_id,), "other")) == Answer(done=1)
    header, body = place.after().reader.read(message_id)
    assert (header.subject, header.protocol, body) == ("eggs", "raw", large)


def test_a_redrive_takes_what_its_target_has_room_for_in_order(place: Place) -> None:
    """And nothing that came after, so that none overtakes another; a held one counts as left."""
    place.create("dead")
    place.create("q", max_depth=3)
    [there] = place.put("q")
    ids = place.put("dead", count=4, annotations=with_death(None, Death("q", "expired", 1, 0)))
    place.hold("dead", ids[0])
    answer = place.control.run(Request(REDRIVE, "dead", tuple(ids), "q", "0123abcd"))
    assert answer == Answer(done=2, left=1, full=1)
    after = place.after()
    assert after.ids("q") == [there, *ids[1:3]]
    assert after.ids("dead") == [ids[0], ids[3]]
    assert origin_of(after.state.queues["q"].entries[ids[1]].detail) == "q"


def test_a_redrive_stops_at_a_message_that_is_too_large(place: Place) -> None:
    place.create("dead")
    place.create("q", max_bytes=len(b"hbody 0") * 2)
    [first] = place.put("dead")
    [large] = place.put("dead", header=HEADER._replace(header=b"h" * 20))
    [small] = place.put("dead")
    answer = place.control.run(Request(REDRIVE, "dead", (first, large, small), "q"))
    assert answer == Answer(done=1, full=2)
    assert place.after().ids("dead") == [large, small]


REFUSED = [
    (Request(MOVE, "nope", (1,), "q"), "unknown queue 'nope'"),
    (Request(MOVE, "q", (1,), "nope"), "unknown queue 'nope': create it first"),
    (Request(MOVE, "q", (1,), "q"), "cannot move to 'q'"),
    (Request(MOVE, "q", (1,)), "name another queue"),
    (Request(REDRIVE, "q", (1,), "nope"), "unknown queue 'nope': create it first"),
    (Request(REDRIVE, "q", (1,)), "name another queue"),
    (Request(PURGE, "nope", ()), "unknown queue"),
    (Request(PURGE, "q", tuple(range(1, MAX_IDS + 2))), f"at most {MAX_IDS}"),
]


@pytest.mark.parametrize(("request_", "reason"), REFUSED, ids=lambda value: str(value)[:30])
def test_a_request_that_cannot_be_done_is_refused_and_changes_nothing(
    queues: Queues, request_: Request, reason: str
) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        queues.place.control.run(request_)
    assert queues.place.control.run(Request(PURGE, "q", ())) == Answer()
    assert queues.place.after().ids("q") == queues.ids


def test_put_on_an_unknown_queue_is_refused(queues: Queues) -> None:
    with pytest.raises(InvalidRequest, match="unknown queue"):
        queues.place.control.put("nope", [MessageDraft(HEADER, b"x")])


def test_release_frees_what_a_dead_consumer_held_and_nothing_else(queues: Queues) -> None:
    """At rest every holder is dead; a broker has released those at its start, the rest lives."""
    place, ids = queues.place, queues.ids
    place.hold("q", ids[0])
    answer = place.control.run(Request(RELEASE, "q", tuple(ids[:2])))
    entry = place.after().state.queues["q"].entries[ids[0]]
    if place.is_served:
        assert answer == Answer(left=2)
        assert entry.acquired_by == "live"
    else:
        assert answer == Answer(done=1, left=1)
        assert (entry.acquired_by, entry.delivery_count) == (None, 1)


def placements(*each: Placement, undoes: str | None = None) -> PlacementRequest:
    return PlacementRequest(each, "0123abcd", undoes)


def test_a_placement_puts_a_message_in_the_place_of_another(queues: Queues) -> None:
    place, ids = queues.place, queues.ids
    draft = MessageDraft(HEADER._replace(subject="mended"), b"new")
    told = {"x-opt-resubmitted-from": ("ulong", str(ids[0]))}
    answer = place.control.place(
        placements(Placement(ids[0], "q", "other", draft, annotations=told))
    )
    assert answer == Answer(done=1)
    after = place.after()
    [new] = after.ids("other")
    assert (after.ids("q"), after.body(new)) == (ids[1:], b"new")
    assert annotations_of(after.state.queues["other"].entries[new].detail) == told


def test_placements_keep_order_delivery_counts_and_annotations(queues: Queues) -> None:
    """Of what is put again on its own queue, of what comes from another, and of what is new."""
    place, ids = queues.place, queues.ids
    [other] = place.put("other")
    large = b"x" * (3 << 20)
    put = [
        Placement(target="q", draft=MessageDraft(HEADER, large), delivery_count=4),
        Placement(other, "other", "q", delivery_count=2, annotations={"a": ("string", "b")}),
        Placement(ids[2], "q", "q", annotations={}),
        Placement(ids[1], "q", "q", expires_at=1 << 52),
        Placement(ids[3], "q"),
    ]
    assert place.control.place(placements(*put, undoes="89ef4567")) == Answer(done=5)
    after = place.after()
    first, new, *rest = after.ids("q")
    entries = after.state.queues["q"].entries
    assert (first, rest) == (ids[0], [other, ids[2], ids[1]])
    assert (after.body(new), entries[new].delivery_count) == (large, 4)
    assert (entries[other].delivery_count, entries[other].detail) == (2, '{"a":["string","b"]}')
    assert (entries[ids[2]].detail, entries[ids[1]].expires_at) == ("{}", 1 << 52)
    assert after.ids("other") == []


def test_a_placement_of_a_message_that_is_held_or_gone_is_left_out_whole(queues: Queues) -> None:
    place, ids = queues.place, queues.ids
    place.hold("q", ids[0])
    draft = MessageDraft(HEADER, b"new")
    answer = place.control.place(
        placements(
            Placement(ids[0], "q", "other", draft),
            Placement(99_999, "q", "other", draft),
            Placement(ids[1], "q", "other"),
        )
    )
    assert answer == Answer(done=1, left=1, gone=1)
    assert place.after().ids("other") == [ids[1]]


@pytest.mark.parametrize(
    ("placement", "reason"),
    [
        (Placement(1, "nope", "q"), "unknown queue 'nope'"),
        (Placement(1, "q", "nope"), "unknown queue 'nope': create it first"),
    ],
)
def test_placements_for_a_queue_that_is_not_there_are_refused_whole(
    queues: Queues, placement: Placement, reason: str
) -> None:
    request = placements(Placement(queues.ids[0], "q", "other"), placement)
    with pytest.raises(InvalidRequest, match=reason):
        queues.place.control.place(request)
    assert queues.place.after().ids("q") == queues.ids
