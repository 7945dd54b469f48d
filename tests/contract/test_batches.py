"""Many calls in one, of every `BrokerStore`: each for itself, in order, told together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from broker_shim.durability import TerminusDurability
from broker_shim.errors import Closed, InvalidRequest, StoreError
from broker_shim.store.interface import BrokerStore, NewMessageRun, Queue, StoredRun
from broker_shim.store.protocol import MAX_BATCH
from sparkstore.core.annotations import as_detail
from sparkstore.core.state_machine.call_values import EnqueueCall
from tests.support.stores.calls import HEADER
from tests.support.stores.stores import MAX_MESSAGE_BYTES, Home, done, outcomes


def new(count: int, queue: str = "q") -> NewMessageRun:
    """So many messages that share a header."""
    return NewMessageRun((HEADER,), (b"body",) * count, queue)


@pytest.fixture
def q(store: BrokerStore) -> BrokerStore:
    """The store, with queues `q` and `other`."""
    for name in ("q", "other"):
        done(store.create, Queue(name))
    return store


def test_of_many_new_messages_each_is_put_or_refused_for_itself_in_order(q: BrokerStore) -> None:
    strange: Any = "no message"
    messages = [
        (HEADER, b"body"),
        (HEADER, bytes(MAX_MESSAGE_BYTES + 1)),
        (strange, b"body"),
        (HEADER, bytes(MAX_MESSAGE_BYTES)),
        (HEADER._replace(correlation_id="\ud800"), b"body"),
        (HEADER, strange),
        (HEADER._replace(protocol=None), b"body"),
        (HEADER, b"body"),
    ]
    ids, told = outcomes(q.enqueue_new, NewMessageRun(*zip(*messages, strict=True), "q"))
    refused = "InvalidRequest"
    assert told == ["", refused, refused, "", refused, refused, refused, ""]
    assert [*q.recover().entries["q"]] == [ids[0], ids[3], ids[7]]
    assert q.load(ids[7]).body == b"body"
    assert len(q.load(ids[3]).body) == MAX_MESSAGE_BYTES
    assert outcomes(q.enqueue_new, new(2, "unknown"))[1] == [refused] * 2


def test_a_batch_may_be_larger_than_what_is_sent_at_once(q: BrokerStore) -> None:
    count = 2 * MAX_BATCH + 1
    ids, told = outcomes(q.enqueue_new, new(count))
    assert told == [""] * count
    assert [*q.recover().entries["q"]] == [*ids]
    assert outcomes(q.acquire_each, ids, "q", "me")[1] == told
    assert outcomes(q.dequeue_each, ids, "q", "me")[1] == told
    assert [*q.recover().entries["q"]] == []


def test_of_many_entries_each_is_taken_or_refused_for_itself(q: BrokerStore) -> None:
    (first, second, third), _ = outcomes(q.enqueue_new, new(3))
    done(q.acquire, second, "q", "another")
    asked: list[Any] = [first, second, first, "no id", 1 << 70, third]
    refused, held = "InvalidRequest", "NotAcquired"
    assert outcomes(q.acquire_each, asked, "q", "me")[1] == ["", held, held, refused, refused, ""]
    assert outcomes(q.dequeue_each, asked, "q", "me")[1] == [
        "",
        held,
        refused,
        refused,
        refused,
        "",
    ]
    assert q.recover().entries["q"][second].acquired_by == "another"
    assert [*q.recover().entries["q"]] == [second]


@pytest.mark.parametrize("part", [slice(0, 10, 2), slice(8, None, -2), slice(4, 5, 3)])
def test_a_range_with_a_step_names_the_messages_that_are_in_it(q: BrokerStore, part: slice) -> None:
    outcomes(q.enqueue_new, new(40))  # as many as are columns from the beginning
    whole = [*q.recover().entries["q"]]
    ids = range(whole[0], whole[0] + 40)[part]
    assert [*ids] == whole[part]
    wanted = [""] * len(ids)
    assert outcomes(q.enqueue_each, stored(q, ids), "other")[1] == wanted
    assert [*q.recover().entries["other"]] == [*ids]
    assert outcomes(q.acquire_each, ids, "q", "me")[1] == wanted
    entries = q.recover().entries["q"]
    assert {i for i in whole if entries[i].acquired_by} == {*ids}
    assert outcomes(q.dequeue_each, ids, "q", "me")[1] == wanted
    assert [*q.recover().entries["q"]] == [i for i in whole if i not in ids]


def test_of_many_entries_each_is_given_back_or_refused_for_itself(q: BrokerStore) -> None:
    ids, _ = outcomes(q.enqueue_new, new(6))
    outcomes(q.acquire_each, ids[:5], "q", "me")
    done(q.acquire, ids[5], "q", "another")

    def released(asked: Sequence[Any], *, failed: bool) -> list[str]:
        def call(*terms: Any) -> None:
            q.release_each(*terms, delivery_failed=failed)

        return outcomes(call, asked, "q", "me")[1]

    assert released(ids[:3], failed=True) == ["", "", ""]
    refused, held = "InvalidRequest", "NotAcquired"
    asked: list[Any] = [ids[3], ids[0], "no id", ids[5], ids[3]]
    assert released(asked, failed=False) == ["", refused, refused, held, refused]
    entries = [q.recover().entries["q"][message_id] for message_id in ids]
    holders = [entry.acquired_by for entry in entries]
    assert holders == [None, None, None, None, "me", "another"]
    assert [entry.delivery_count for entry in entries] == [1, 1, 1, 0, 0, 0]


def test_a_whole_batch_is_refused_for_what_all_of_it_shares(q: BrokerStore) -> None:
    ids, _ = outcomes(q.enqueue_new, new(2))
    nobody: Any = 5
    assert outcomes(q.acquire_each, ids, "unknown", "me")[1] == ["InvalidRequest"] * 2
    assert outcomes(q.acquire_each, ids, "q", nobody)[1] == ["InvalidRequest"] * 2
    assert outcomes(q.dequeue_each, ids, "q", nobody)[1] == ["InvalidRequest"] * 2


def test_a_batch_survives_a_restart(home: Home) -> None:
    done(home.store.create, Queue("q"))
    ids, _ = outcomes(home.store.enqueue_new, new(3))
    outcomes(home.store.dequeue_each, ids[:1], "q", None)
    outcomes(home.store.acquire_each, ids[1:2], "q", "me")
    home.reopen()
    if home.tier is TerminusDurability.UNSETTLED_STATE:
        assert [*home.store.recover().entries["q"]] == [*ids[1:]]


def stored(q: BrokerStore, ids: Sequence[int]) -> StoredRun:
    """Messages of the store as a run, with the header that all of them share."""
    return StoredRun(ids, [q.load(ids[0]).header])


@pytest.mark.parametrize("cut", [slice(0, 1), slice(1, 4), slice(0, 9, 2), slice(None)])
def test_a_run_is_moved_in_a_transaction_with_what_its_entries_say(home: Home, cut: slice) -> None:
    q = home.store
    for name in ("q", "other"):
        done(q.create, Queue(name))
    ids, _ = outcomes(q.enqueue_new, new(9))
    moved, annotations = ids[cut], {"x-opt-why": ("uint", "1")}
    count, within = len(moved), q.begin()
    put = partial(q.enqueue_each, transaction=within, annotations=annotations)
    assert outcomes(put, stored(q, moved), "other")[1] == [""] * count
    take = partial(q.dequeue_each, outcome={"outcome": "moved"}, transaction=within)
    assert outcomes(take, moved, "q", None)[1] == [""] * count
    assert [*q.recover().entries["other"]] == []
    assert outcomes(q.acquire_each, moved, "q", "another")[1] == ["NotAcquired"] * count
    done(q.commit, within)
    for _ in range(2):
        entries = home.store.recover().entries
        assert [*entries["other"]] == [*moved]
        assert [*entries["q"]] == [i for i in ids if i not in moved]
        assert {entry.detail for entry in entries["other"].values()} == {as_detail(annotations)}
        assert {home.store.load(i).body for i in ids} == {b"body"}
        if home.tier is not TerminusDurability.UNSETTLED_STATE:
            return
        home.reopen()


def test_runs_are_acquired_and_given_back_in_a_transaction(q: BrokerStore) -> None:
    ids, _ = outcomes(q.enqueue_new, new(8))
    within = q.begin()
    assert outcomes(partial(q.acquire_each, transaction=within), ids[:6], "q", "me")[1] == [""] * 6
    fail = partial(q.release_each, transaction=within, delivery_failed=True)
    assert outcomes(fail, ids[2:4], "q", "me")[1] == [""] * 2
    again = partial(q.acquire_each, transaction=within)
    assert outcomes(again, ids[3:4], "q", "you")[1] == [""]
    done(q.commit, within)
    entries = q.recover().entries["q"]
    holders = [entries[message_id].acquired_by for message_id in ids]
    assert holders == ["me", "me", None, "you", "me", "me", None, None]
    assert [entries[message_id].delivery_count for message_id in ids] == [0, 0, 1, 1, 0, 0, 0, 0]


def test_a_run_is_put_at_the_end_of_the_queue_that_it_is_taken_off(q: BrokerStore) -> None:
    ids, _ = outcomes(q.enqueue_new, new(5))
    run, within = stored(q, ids[:3]), q.begin()
    assert (
        outcomes(partial(q.enqueue_each, transaction=q.begin()), run, "q")[1]
        == ["InvalidRequest"] * 3
    )
    outcomes(partial(q.dequeue_each, transaction=within), ids[:3], "q", None)
    assert outcomes(partial(q.enqueue_each, transaction=within), run, "q")[1] == [""] * 3
    done(q.commit, within)
    assert [*q.recover().entries["q"]] == [*ids[3:], *ids[:3]]
    assert q.load(ids[0]).body == b"body"


def test_one_refusal_in_a_run_spoils_its_transaction(q: BrokerStore) -> None:
    ids, _ = outcomes(q.enqueue_new, new(4))
    done(q.acquire, ids[2], "q", "another")
    within = q.begin()
    taken = outcomes(partial(q.dequeue_each, transaction=within), ids, "q", None)[1]
    assert taken == ["NotAcquired"] * 4
    with pytest.raises(InvalidRequest):
        done(q.commit, within)
    assert [*q.recover().entries["q"]] == [*ids]
    assert outcomes(q.dequeue_each, ids[3:], "q", None)[1] == [""]  # nobody has it any more
    for call in (q.dequeue_each, q.acquire_each):
        ended = outcomes(partial(call, transaction=within), ids[:2], "q", "me")[1]
        assert ended == ["InvalidRequest"] * 2


def test_stored_messages_go_to_a_second_queue_each_for_itself(q: BrokerStore) -> None:
    ids, _ = outcomes(q.enqueue_new, new(4))
    assert outcomes(q.enqueue_each, stored(q, ids[1:2]), "other")[1] == [""]
    assert outcomes(q.enqueue_each, stored(q, ids), "other")[1] == ["", "InvalidRequest", "", ""]
    assert outcomes(q.enqueue_each, stored(q, ids), "unknown")[1] == ["InvalidRequest"] * 4
    assert [*q.recover().entries["other"]] == [ids[1], ids[0], ids[2], ids[3]]
    for wrong in (StoredRun([], [HEADER]), StoredRun([1, 1], [HEADER]), StoredRun([1], []), ids):
        with pytest.raises(InvalidRequest):
            q.enqueue_each(wrong, "other", _nobody)  # type: ignore[arg-type]


@pytest.mark.parametrize("queues", [("q",), ("q", "other"), ("q", "short")])
def test_new_messages_that_a_transaction_brings_are_there_with_their_content(
    home: Home, queues: tuple[str, ...]
) -> None:
    """Also on a second queue, and where a queue looks at each of them."""
    q = home.store
    done(q.create, Queue("q"))
    done(q.create, Queue("other"))
    done(q.create, Queue("short", arguments={"max_depth": 2000, "message_ttl_ms": 10**9}))
    bodies = [b"%d" % number for number in range(MAX_BATCH + 3)]
    within, another = q.begin(), q.begin()
    runs = q.messages((HEADER,), bodies)
    for queue in queues:
        for run in runs:
            done(q.call, EnqueueCall(run, queue), transaction=within)
    done(q.call, EnqueueCall(q.messages((HEADER,), [b"no"])[0], "q"), transaction=another)
    assert not q.recover().entries["q"]
    done(q.abort, another)
    done(q.commit, within)
    for _ in range(2):
        entries = home.store.recover().entries
        for queue in queues:
            assert [home.store.load(message_id).body for message_id in entries[queue]] == bodies
        if home.tier is not TerminusDurability.UNSETTLED_STATE:
            return
        home.reopen()


def test_a_run_of_new_messages_that_cannot_be_is_not_made(q: BrokerStore) -> None:
    large = bytes(MAX_MESSAGE_BYTES + 1)
    for headers, bodies in (
        ((HEADER,), [b"", None]),
        ((HEADER._replace(correlation_id="\ud800"),), [b""]),
    ):
        with pytest.raises(InvalidRequest):
            q.messages(headers, bodies)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest):
        _bring(q, [b"", large])
    wrong, put = StoredRun([7, 8], [HEADER], [b"one body"]), partial(q.call, transaction=q.begin())
    with pytest.raises(InvalidRequest):
        done(put, EnqueueCall(wrong, "q"))


def _bring(q: BrokerStore, bodies: Sequence[bytes]) -> None:
    """New messages come on a queue in a transaction that is never committed."""
    within = q.begin()
    for run in q.messages((HEADER,), bodies):
        done(q.call, EnqueueCall(run, "q"), transaction=within)


def test_what_came_in_pieces_is_enqueued_together_and_read_at_once(q: BrokerStore) -> None:
    within, ids = q.begin(), []
    for n in range(3):
        new = done(q.stage, q.message(HEADER), [b"in", b" pieces %d" % n])
        ids.append(new.message_id)
        done(q.enqueue, new, "q", transaction=within)
    done(q.commit, within)
    assert [q.load(i).body for i in ids] == [b"in pieces %d" % n for n in range(3)]


def test_new_messages_with_their_ids_are_put_with_their_content(q: BrokerStore) -> None:
    runs = q.messages((HEADER,), [b"%d" % n for n in range(5)])
    for run in runs:
        done(q.call, EnqueueCall(run, "q"))
    assert [q.load(i).body for i in q.recover().entries["q"]] == [b"%d" % n for n in range(5)]


def test_messages_that_are_on_no_queue_yet_are_no_stored_ones(q: BrokerStore) -> None:
    made = [q.message(HEADER, b"body") for _ in range(3)]
    run = StoredRun([message.message_id for message in made], [made[0].header])
    assert outcomes(q.enqueue_each, run, "q")[1] == ["InvalidRequest"] * 3
    assert [*q.recover().entries["q"]] == []
    for message in made:  # nobody has forgotten what they bring
        done(q.enqueue, message, "q")
        assert q.load(message.message_id).body == b"body"


def test_a_run_that_was_refused_may_bring_its_content_again(q: BrokerStore) -> None:
    for run in q.messages((HEADER,), [b"one", b"two", b"three"]):
        with pytest.raises(StoreError):
            done(q.call, EnqueueCall(run, "unknown"))
        for message in run.singles():
            done(q.call, EnqueueCall(message, "q"))
    assert [q.load(i).body for i in q.recover().entries["q"]] == [b"one", b"two", b"three"]


def test_a_run_in_memory_is_moved_with_its_content(q: BrokerStore) -> None:
    run = NewMessageRun((HEADER._replace(durable=False),), (b"in memory",) * 3, "q")
    ids, _ = outcomes(q.enqueue_new, run)
    within = q.begin()
    outcomes(partial(q.enqueue_each, transaction=within), stored(q, ids), "other")
    outcomes(partial(q.dequeue_each, transaction=within), ids, "q", None)
    done(q.commit, within)
    assert {q.load(i).body for i in q.recover().entries["other"]} == {b"in memory"}


def test_a_closed_store_takes_no_batch(home: Home) -> None:
    home.store.close()
    for call in (
        lambda: home.store.enqueue_new(new(1), _nobody),
        lambda: home.store.dequeue_each([1], "q", "me", _nobody),
    ):
        with pytest.raises(Closed):
            call()


def test_no_batch_is_of_nothing(q: BrokerStore) -> None:
    wrong: list[Any] = [new(0), [], NewMessageRun((HEADER,) * 2, (b"body",) * 3, "q"), "text"]
    wrong += [NewMessageRun("text", (b"body",) * 4, "q"), NewMessageRun((HEADER,), b"body", "q")]  # type: ignore[arg-type]
    for messages in wrong:
        with pytest.raises(InvalidRequest):
            q.enqueue_new(messages, _nobody)


def _nobody(_outcomes: Sequence[StoreError | None]) -> None:
    """Nobody waits."""


@pytest.mark.parametrize(
    ("headers", "bodies"), [(None, None), ((), (b"a",)), ((HEADER,), ()), ((HEADER,) * 2, (b"a",))]
)
def test_messages_are_not_made_of_what_is_no_run(q: BrokerStore, headers: Any, bodies: Any) -> None:
    with pytest.raises(InvalidRequest, match="give"):
        q.messages(headers, bodies)


@pytest.mark.parametrize("is_in_transaction", [False, True])
def test_a_run_that_is_not_as_it_was_made_is_refused_as_a_whole(
    q: BrokerStore, is_in_transaction: bool
) -> None:
    bodies = [b"one", b"two"]
    new_ones = q.messages((HEADER,), bodies)
    ids = [message_id for one in new_ones for message_id in one.message_ids]
    run = StoredRun(ids, new_ones[0].headers[:1], bodies)
    wrong = [
        run._replace(bodies=[b"one", b"longer"]),
        run._replace(headers=[run.headers[0].known()]),
        run._replace(
            headers=[run.headers[0]._replace(body_bytes=MAX_MESSAGE_BYTES + 1)],
            bodies=[bytes(MAX_MESSAGE_BYTES + 1)] * 2,
        ),
        StoredRun([run.message_ids[0]] * 2, run.headers, run.bodies),
    ]
    for made in wrong:
        within = q.begin() if is_in_transaction else None
        with pytest.raises(InvalidRequest):
            done(q.call, EnqueueCall(made, "q"), transaction=within)
    assert [*q.recover().entries["q"]] == []
