"""The limits of a queue hold on every road that enqueues, in every `BrokerStore`.

A road brings `SENT` messages to the queue `q`. One that is a transaction brings all of them, or
none. A limit that somebody adds to `QueueArguments.why_full` holds on the same roads: a toy shows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from broker_shim.completion import Completion
from broker_shim.errors import Full, InvalidRequest, StoreError
from broker_shim.store.interface import BrokerStore, NewMessageRun, Queue, StoredMessage
from broker_shim.store.remote.remote_store import RemoteMessageStore
from sparkstore.core.annotations import annotations_of
from sparkstore.core.queue_arguments import QueueArguments
from sparkstore.core.state_machine.sole_host import OBJECT
from sparkstore.core.xids import Xid
from tests.support.stores.calls import HEADER
from tests.support.stores.stores import TIMEOUT_S, done

SENT, ROOM = 5, 2
BODY = b"0123456789"
BYTES = len(HEADER.header or b"") + len(BODY)
XID = Xid(7, b"global", b"branch")

Told = list[StoreError | None]


def together(calls: list[Callable[[Callable[[StoreError | None], None]], Any]]) -> Told:
    """Make calls without waiting between them, then wait for what each came to."""
    completions = [Completion() for _ in calls]
    for call, completion in zip(calls, completions, strict=True):
        call(completion.finish)
    return [outcome(completion) for completion in completions]


def outcome(completion: Completion) -> StoreError | None:
    try:
        completion.complete(TIMEOUT_S)
    except StoreError as refusal:
        return refusal
    return None


def made(store: BrokerStore) -> list[StoredMessage]:
    return [store.message(HEADER, BODY) for _ in range(SENT)]


def by_calls(store: BrokerStore) -> Told:
    return together(
        [lambda told, each=each: store.enqueue(each, "q", told) for each in made(store)]
    )


def annotated(store: BrokerStore) -> Told:
    return together(
        [
            lambda told, each=each: store.enqueue(
                each, "q", told, annotations={"x": ("string", "y")}
            )
            for each in made(store)
        ]
    )


def by_a_batch(store: BrokerStore) -> Told:
    found: list[Told] = []
    told = Completion()

    def on_complete(outcomes: Any) -> None:
        found.append([*outcomes])
        told.finish(None)

    store.enqueue_new(NewMessageRun((HEADER,), (BODY,) * SENT, "q"), on_complete)
    told.complete(TIMEOUT_S)
    return found[0]


def in_pieces(store: BrokerStore) -> Told:
    found: Told = []
    for _ in range(SENT):
        message = done(store.stage, store.message(HEADER), [BODY[:3], BODY[3:]])
        found += together([lambda told, each=message: store.enqueue(each, "q", told)])
    return found


def in_a_transaction(store: BrokerStore) -> Told:
    transaction = store.begin()
    calls: list[Any] = [
        lambda told, each=each: store.enqueue(each, "q", told, transaction) for each in made(store)
    ]
    return together([*calls, lambda told: store.commit(transaction, told)])[-1:]


def on_two_queues(store: BrokerStore) -> Told:
    """The second queue only names the message: it is no less a new one there."""
    transaction = store.begin()
    calls: list[Any] = [
        lambda told, each=each, name=name: store.enqueue(each, name, told, transaction)
        for each in made(store)
        for name in ("other", "q")
    ]
    return together([*calls, lambda told: store.commit(transaction, told)])[-1:]


def in_a_branch(store: Any) -> Told:
    transaction = store.begin()
    calls: list[Any] = [
        lambda told, each=each: store.enqueue(each, "q", told, transaction) for each in made(store)
    ]
    told = together([*calls, lambda told: store.prepare(transaction, XID, told)])[-1:]
    if told == [None]:
        done(store.commit_prepared, XID)
    return told


class Road(NamedTuple):
    send: Callable[[Any], Told]
    is_whole: bool = False


ROADS = {
    each.send.__name__: each
    for each in (
        Road(by_calls),
        Road(annotated),
        Road(by_a_batch),
        Road(in_pieces),
        Road(in_a_transaction, is_whole=True),
        Road(on_two_queues, is_whole=True),
        Road(in_a_branch, is_whole=True),
    )
}


@pytest.fixture(params=ROADS)
def road(request: pytest.FixtureRequest) -> Road:
    return ROADS[request.param]


def queue(store: BrokerStore, **arguments: Any) -> None:
    done(store.create, Queue("q", arguments=arguments))
    done(store.create, Queue("other"))


def depth(store: BrokerStore, name: str = "q") -> int:
    return len(store.recover().entries[name])


def put(store: BrokerStore, name: str = "q") -> int:
    message = store.message(HEADER, BODY)
    done(store.enqueue, message, name)
    return message.message_id


def check(told: Told, road: Road, room: int) -> None:
    """Of what a road brought, as much was taken as there was room, or all was refused."""
    assert [each for each in told if each is not None and type(each) is not Full] == []
    assert sum(each is None for each in told) == (0 if road.is_whole else room)


@pytest.mark.parametrize("limit", [{"max_depth": ROOM}, {"max_bytes": ROOM * BYTES}])
def test_a_full_queue_takes_no_more_on_any_road(
    store: BrokerStore, road: Road, limit: dict[str, int]
) -> None:
    queue(store, **limit)
    check(road.send(store), road, ROOM)
    assert depth(store) == (0 if road.is_whole else ROOM)
    assert depth(store, "other") == 0


def test_what_fits_is_taken_on_every_road(store: BrokerStore, road: Road) -> None:
    queue(store, max_depth=SENT, max_bytes=SENT * BYTES)
    told = road.send(store)
    assert {*told} == {None}
    assert depth(store) == SENT
    with pytest.raises(Full, match=r"queue 'q' is full .max_depth is 5.: nothing was done"):
        put(store)


def test_a_limit_that_is_added_in_one_place_holds_on_every_road(
    store: BrokerStore, road: Road, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ARCHITECTURE names the place, in "Where decisions are"."""

    def toy(_arguments: QueueArguments, depth: int, _byte_count: int) -> str | None:
        return "no more than two" if depth > ROOM else None

    monkeypatch.setattr(QueueArguments, "asks_of_arrivals", True)
    monkeypatch.setattr(QueueArguments, "why_full", toy)
    queue(store)
    told = road.send(store)
    refusals = [each for each in told if each is not None]
    assert refusals
    assert all("no more than two" in str(each) for each in refusals)
    assert depth(store) == (0 if road.is_whole else ROOM)


@pytest.mark.parametrize("when_full", ["reject", "drop_head"])
def test_a_broker_j_host_sees_to_limits_itself_on_every_road(
    store: BrokerStore, road: Road, when_full: str
) -> None:
    """It cannot be told that a queue of its own is full, nor that a message left one."""
    whose = {"host": "h", "attached": None, "changed": False}
    if isinstance(store, RemoteMessageStore):  # a member cannot say so: the service does
        with pytest.raises(InvalidRequest):
            done(store.configure, *OBJECT, whose)
        return
    done(store.configure, *OBJECT, whose)
    queue(store, max_depth=ROOM, when_full=when_full)
    assert {*road.send(store)} == {None}
    assert depth(store) == SENT


def test_there_is_room_again_when_messages_have_left(store: BrokerStore) -> None:
    queue(store, max_depth=1)
    first = put(store)
    with pytest.raises(Full):
        put(store)
    done(store.dequeue, first, "q", None)
    put(store)
    assert depth(store) == 1


def test_a_held_message_takes_room(store: BrokerStore) -> None:
    queue(store, max_depth=1)
    done(store.acquire, put(store), "q", "c")
    with pytest.raises(Full):
        put(store)


def test_a_transaction_may_put_as_many_as_it_takes(store: BrokerStore) -> None:
    queue(store, max_depth=2)
    off = [put(store), put(store)]
    transaction = store.begin()
    for each in off:
        done(store.dequeue, each, "q", None, transaction=transaction)
    new = [store.message(HEADER, BODY) for _ in off]
    for message in new:
        done(store.enqueue, message, "q", transaction=transaction)
    done(store.commit, transaction)
    assert [*store.recover().entries["q"]] == [each.message_id for each in new]


def test_a_message_that_is_there_already_moves_to_a_full_queue(store: BrokerStore) -> None:
    queue(store, max_depth=1)
    put(store)
    dead = store.message(HEADER, BODY)
    done(store.enqueue, dead, "other")
    transaction = store.begin()
    done(store.enqueue, dead, "q", transaction=transaction)
    done(store.dequeue, dead.message_id, "other", None, transaction=transaction)
    done(store.commit, transaction)
    assert depth(store) == 2
    with pytest.raises(Full):
        put(store)


def test_a_promise_of_a_prepared_branch_takes_room_and_is_kept(store: Any) -> None:
    queue(store, max_depth=1)
    transaction = store.begin()
    done(store.enqueue, store.message(HEADER, BODY), "q", transaction=transaction)
    done(store.prepare, transaction, XID)
    with pytest.raises(Full):
        put(store)
    done(store.alter, Queue("q", arguments={"max_depth": 1, "max_bytes": 1}))
    done(store.commit_prepared, XID)
    assert depth(store) == 1


def test_a_limit_is_altered_for_what_comes_from_then_on(store: BrokerStore) -> None:
    queue(store)
    for _ in range(3):
        put(store)
    done(store.alter, Queue("q", arguments={"max_depth": 2}))
    assert depth(store) == 3
    with pytest.raises(Full):
        put(store)
    done(store.alter, Queue("q"))
    put(store)
    assert depth(store) == 4


@pytest.mark.parametrize(
    "wrong",
    [
        *({"max_depth": value} for value in (0, -1, 1.5, "2", True, 1 << 63, [])),
        *({"max_bytes": value} for value in (0, -1, "1MB")),
        *(
            {"when_full": value}
            for value in ("wait", "dead_letter", "Reject", "dead-letter", "", 1, ["reject"])
        ),
    ],
    ids=str,
)
def test_a_limit_that_cannot_be_is_refused(store: BrokerStore, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match=next(iter(wrong))):
        done(store.create, Queue("q", arguments=wrong))


@pytest.mark.parametrize("limit", [{"max_depth": ROOM}, {"max_bytes": ROOM * BYTES}])
def test_where_the_head_is_dropped_the_newest_are_there_on_every_road(
    store: BrokerStore, road: Road, limit: dict[str, int]
) -> None:
    queue(store, when_full="drop_head", **limit)
    before = [put(store) for _ in range(ROOM)]
    assert {*road.send(store)} == {None}
    there = [*store.recover().entries["q"]]
    assert len(there) == ROOM
    assert there == sorted(there)
    assert there[0] >= before[-1] + SENT - ROOM + 1
    assert [store.load(each).body for each in there] == [BODY] * ROOM


@pytest.mark.parametrize("limit", [{"max_depth": ROOM}, {"max_bytes": ROOM * BYTES}])
def test_where_they_are_dead_letters_the_first_stay_on_every_road(
    store: BrokerStore, road: Road, limit: dict[str, int]
) -> None:
    done(store.create, Queue("dead"))
    queue(store, when_full="dead_letter", dead_letter_queue="dead", **limit)
    assert {*road.send(store)} == {None}
    entries = store.recover().entries
    assert [len(entries[name]) for name in ("q", "dead")] == [ROOM, SENT - ROOM]
    assert max(entries["q"]) < min(entries["dead"])
    for entry in entries["dead"].values():
        told = annotations_of(entry.detail)
        assert told["x-opt-death-queue"] == ("string", "q")
        assert told["x-opt-death-reason"] == ("string", "full")
    assert {store.load(each).body or store.read(each, 0, 99) for each in entries["dead"]} == {BODY}


@pytest.mark.parametrize(
    ("dead", "left"),
    [
        ({"max_depth": 1}, SENT - ROOM),
        ({"max_depth": 1, "when_full": "drop_head"}, 1),
        ({"max_depth": 1, "when_full": "dead_letter", "dead_letter_queue": "q"}, SENT - ROOM),
    ],
    ids=["reject", "drop_head", "in a circle"],
)
def test_a_dead_letter_of_a_full_queue_comes_to_a_full_queue(
    store: BrokerStore, road: Road, dead: dict[str, Any], left: int
) -> None:
    done(store.create, Queue("dead", arguments=dead))
    queue(store, max_depth=ROOM, when_full="dead_letter", dead_letter_queue="dead")
    assert {*road.send(store)} == {None}
    assert [depth(store, name) for name in ("q", "dead")] == [ROOM, left]


def test_without_its_dead_letter_queue_a_full_queue_refuses(store: BrokerStore, road: Road) -> None:
    queue(store, max_depth=ROOM, when_full="dead_letter", dead_letter_queue="gone")
    check(road.send(store), road, ROOM)
    assert depth(store) == (0 if road.is_whole else ROOM)


def test_a_message_that_goes_to_the_dead_letters_twice_is_refused_as_a_whole(
    store: BrokerStore,
) -> None:
    done(store.create, Queue("dead"))
    queue(store, max_depth=1, when_full="dead_letter", dead_letter_queue="dead")
    put(store)
    for names in (("q", "dead"), ("dead", "q")):
        transaction, message = store.begin(), store.message(HEADER, BODY)
        calls: list[Any] = [
            lambda told, name=name: store.enqueue(message, name, told, transaction)  # noqa: B023
            for name in names
        ]
        told = together([*calls, lambda told: store.commit(transaction, told)])[-1]  # noqa: B023
        assert type(told) is Full
    assert [depth(store, name) for name in ("q", "dead")] == [1, 0]


def test_what_somebody_holds_is_not_dropped(store: BrokerStore) -> None:
    queue(store, max_depth=2, when_full="drop_head")
    held, waits = put(store), put(store)
    done(store.acquire, held, "q", "c")
    newer = put(store)
    assert [*store.recover().entries["q"]] == [held, newer]
    assert waits not in store.recover().entries["q"]
    done(store.acquire, newer, "q", "c")
    with pytest.raises(Full):
        put(store)
    done(store.dequeue, held, "q", "c")


def test_what_a_transaction_claims_is_not_dropped(store: BrokerStore) -> None:
    queue(store, max_depth=2, when_full="drop_head")
    claimed, waits = put(store), put(store)
    transaction = store.begin()
    done(store.dequeue, claimed, "q", None, transaction=transaction)
    newer = put(store)
    assert [*store.recover().entries["q"]] == [claimed, newer]
    done(store.commit, transaction)
    assert [*store.recover().entries["q"]] == [newer]
    assert waits != newer


def test_a_dead_letter_drops_the_oldest_of_a_full_queue(store: BrokerStore) -> None:
    queue(store, max_depth=1, when_full="drop_head")
    put(store)
    dead = put(store, "other")
    message = store.load(dead)
    transaction = store.begin()
    done(store.enqueue, message, "q", transaction=transaction)
    done(store.dequeue, dead, "other", None, transaction=transaction)
    done(store.commit, transaction)
    assert [*store.recover().entries["q"]] == [dead]


def test_what_no_room_can_be_made_for_drops_nothing(store: BrokerStore) -> None:
    queue(store, max_bytes=BYTES + 1, when_full="drop_head")
    there = put(store)
    with pytest.raises(Full):
        done(store.enqueue, store.message(HEADER, BODY * 2), "q")
    assert [*store.recover().entries["q"]] == [there]


def test_of_two_limits_each_holds_where_the_head_is_dropped(store: BrokerStore) -> None:
    """Two small ones go for one that is as large as both."""
    queue(store, max_depth=3, max_bytes=3 * BYTES, when_full="drop_head")
    small = [put(store) for _ in range(3)]
    large = store.message(HEADER, b"x" * (len(BODY) + BYTES))
    done(store.enqueue, large, "q")
    assert [*store.recover().entries["q"]] == [small[-1], large.message_id]
    newer = [put(store) for _ in range(3)]
    assert [*store.recover().entries["q"]] == newer


def test_a_smaller_limit_drops_what_is_too_much_when_the_next_comes(store: BrokerStore) -> None:
    queue(store)
    there = [put(store) for _ in range(4)]
    done(store.alter, Queue("q", arguments={"max_depth": 2, "when_full": "drop_head"}))
    assert [*store.recover().entries["q"]] == there
    newer = put(store)
    assert [*store.recover().entries["q"]] == [there[-1], newer]
