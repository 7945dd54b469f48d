"""Two-phase commit: what every store promises of prepared branches, by tier."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from broker_shim.durability import TerminusDurability
from broker_shim.errors import InvalidRequest, NotAcquired, StoreError
from broker_shim.store.branch_store import BranchFacts, Xid
from broker_shim.store.interface import MessageHeader, Queue, StoredRun
from sparkstore.core.annotations import as_detail
from sparkstore.core.state_machine.call_values import CommitPreparedCall
from tests.support.stores.stores import TIMEOUT_S, Home, done, outcomes

XID = Xid(7, b"global", b"branch")
BODY = bytes(range(256)) * 6000  # more than a piece
HEADER = MessageHeader("raw", b"h\x00\xff", subject="ü", properties=(("k", "v"),))
KEPT = TerminusDurability.UNSETTLED_STATE


@pytest.fixture(params=["memory", "json", "recorded", "delta", "remote", "chain", "mirrored"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    """A place with an open store and a queue `q`."""
    place = Home(request.param, tmp_path / "store")
    done(place.store.create, Queue("q"))
    yield place
    place.store.close()


@pytest.fixture(params=["recorded", "delta", "remote", "chain", "mirrored"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    """The same, of the tiers that keep messages."""
    place = Home(request.param, tmp_path / "store")
    done(place.store.create, Queue("q"))
    yield place
    place.store.close()


def put(store: Any, body: bytes = b"old") -> int:
    """The id of a message that is on `q`."""
    message = store.message(HEADER, body)
    done(store.enqueue, message, "q")
    return int(message.message_id)


def branch_of(store: Any, taken: int, acquired: int, xid: Xid = XID) -> int:
    """Prepare: one message comes, one goes, and one is acquired by `c`. The new one's id."""
    transaction = store.begin()
    message = store.message(HEADER, BODY)
    added = {"x": ("string", "y")}
    done(store.enqueue, message, "q", transaction=transaction, annotations=added)
    done(store.dequeue, taken, "q", "c", transaction=transaction)
    done(store.acquire, acquired, "q", "c", transaction=transaction)
    done(store.prepare, transaction, xid)
    return int(message.message_id)


def refused(call: Any, *args: Any, match: str) -> None:
    """Assert that a call is refused, in one line."""
    with pytest.raises(InvalidRequest, match=match) as refusal:
        done(call, *args)
    assert "\n" not in str(refusal.value)


def entries(store: Any) -> dict[int, Any]:
    """What is on `q`, as it is now."""
    return dict(store.recover().entries["q"])


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("committed", [False, True])
def test_a_branch_in_doubt_keeps_what_it_has_until_it_is_decided(
    home: Home, restarted: bool, committed: bool
) -> None:
    restarted = restarted and home.tier >= KEPT
    taken, acquired = put(home.store), put(home.store)
    new = branch_of(home.store, taken, acquired)
    store: Any = home.reopen() if restarted else home.store
    assert [branch.xid for branch in store.prepared()] == [XID]
    assert sorted(entries(store)) == [taken, acquired]
    for message_id in (taken, acquired):
        for holder in ("c", "other", "xid:7:676c6f62616c:6272616e6368"):
            with pytest.raises(NotAcquired):
                done(store.dequeue, message_id, "q", holder)
    refused(store.destroy, Queue("q"), match="prepared branch 7:")
    done(store.commit_prepared if committed else store.rollback_prepared, XID)
    for is_second in (False, True):
        if is_second and home.tier >= KEPT:
            store = home.reopen()
        assert store.prepared() == []
        there = entries(store)
        if committed:
            assert sorted(there) == [acquired, new]
            assert there[acquired].acquired_by == "c"
            assert store.load(new).body == BODY
            assert store.load(new).header.properties == HEADER.properties
            assert "string" in there[new].detail
        else:
            assert sorted(there) == [taken, acquired]
            assert {entry.acquired_by for entry in there.values()} == {None}
            assert {entry.delivery_count for entry in there.values()} == {0}
    refused(store.commit_prepared, XID, match="no branch 7:")
    refused(store.rollback_prepared, XID, match="no branch 7:")
    done(store.destroy, Queue("q"))


@pytest.mark.parametrize("commits", [False, True])
def test_what_an_operator_decided_is_remembered_until_the_coordinator_knows(
    home: Home, commits: bool
) -> None:
    state = "heuristically committed" if commits else "heuristically rolled back"
    taken, acquired = put(home.store), put(home.store)
    new = branch_of(home.store, taken, acquired)
    deciding: Any = getattr(home.store, "served", home.store)
    told: list[Any] = []
    refused(home.store.forget_branch, XID, match="in doubt still")  # type: ignore[attr-defined]
    done(deciding.decide_heuristically, XID, "ann", on_steps=told.extend, commits=commits)
    assert {step.record.message_id for step in told} >= {taken}
    store: Any = home.reopen() if home.tier >= KEPT else home.store
    assert sorted(entries(store)) == ([acquired, new] if commits else [taken, acquired])
    (found,) = store.prepared()
    assert (found.xid, found.state, found.holder) == (XID, state, "ann")
    other = store.rollback_prepared if commits else store.commit_prepared
    refused(other, XID, match=f"{state} by ann")
    deciding = getattr(store, "served", store)
    refused(
        lambda xid, on_complete: deciding.decide_heuristically(
            xid, "bob", on_complete, told.extend, commits=commits
        ),
        XID,
        match=f"{state} by ann",
    )
    transaction = store.begin()
    done(store.enqueue, store.message(HEADER), "q", transaction=transaction)
    refused(store.prepare, transaction, XID, match="already")
    if commits:
        done(store.commit_prepared, XID)
    else:
        done(store.forget_branch, XID)
    refused(store.forget_branch, XID, match="nothing is remembered")
    refused(store.commit_prepared, XID, match="no branch 7:")
    store = home.reopen() if home.tier >= KEPT else store
    assert store.prepared() == []


def test_content_that_came_in_pieces_is_the_same_after_a_restart_and_the_commit(kept: Home) -> None:
    home = kept
    transaction = home.store.begin()
    message = done(home.store.stage, home.store.message(HEADER), [BODY[:9], BODY[9:]])
    empty = home.store.message(HEADER)
    for each in (message, empty):
        done(home.store.enqueue, each, "q", transaction=transaction)
    store: Any = home.store
    done(store.prepare, transaction, XID)
    refused(store.enqueue, message, "q", match="belongs to the prepared branch")
    store = home.reopen()
    assert store.prepared()[0].operations == 2
    done(store.commit_prepared, XID)
    assert store.load(message.message_id).body == BODY
    assert home.reopen().load(message.message_id).body == BODY
    assert home.store.load(empty.message_id).body == b""


def test_what_cannot_be_prepared_is_aborted_and_says_why_in_one_line(home: Home) -> None:
    store: Any = home.store
    message_id, held = put(store), put(store)
    branch_of(store, put(store), held)
    wrong = [
        (XID, "already"),
        (Xid(1, b"g" * 200, b""), "200 bytes"),
        (Xid(1, b"g", b"b" * 65), "65 bytes"),
        (Xid(1, b"", b"b"), "0 bytes"),
        (Xid(-1, b"g", b"b"), "format id"),
        (Xid(True, b"g", b"b"), "format id"),
        (Xid(1, "g", b"b"), "give bytes"),  # type: ignore[arg-type]
        ((1, b"g", b"b"), "cannot be tuple"),
        (None, "cannot be NoneType"),
    ]
    for xid, match in wrong:
        transaction = store.begin()
        done(store.dequeue, message_id, "q", "c", transaction=transaction)
        refused(store.prepare, transaction, xid, match=match)
        refused(store.commit, transaction, match="has ended")
    refused(store.prepare, store.begin(), Xid(1, b"g", b""), match="is empty")
    done(store.dequeue, message_id, "q", "c")
    assert len(store.prepared()) == 1


def test_a_branch_takes_new_messages_and_moves_none_that_it_does_not_take(home: Home) -> None:
    store: Any = home.store
    message = store.message(HEADER, b"x")
    done(store.create, Queue("r"))
    done(store.enqueue, message, "r")
    transaction = store.begin()
    done(store.enqueue, message, "q", transaction=transaction)
    done(store.dequeue, put(store), "q", "c", transaction=transaction)
    refused(store.prepare, transaction, XID, match="moves what it takes")
    assert len(entries(store)) == 1


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("how", ["dequeue", "acquire"])
def test_a_branch_moves_what_it_takes_and_nobody_is_before_it(
    home: Home, restarted: bool, committed: bool, how: str
) -> None:
    restarted = restarted and home.tier >= KEPT
    store: Any = home.store
    done(store.create, Queue("r"))
    done(store.create, Queue("s"))
    moved = put(store, b"moved")
    transaction = store.begin()
    message = store.load(moved)
    done(getattr(store, how), moved, "q", "c", transaction=transaction)
    done(store.enqueue, message, "r", transaction=transaction, annotations={"x": ("string", "y")})
    done(store.prepare, transaction, XID)
    store = home.reopen() if restarted else store
    message = store.load(moved)
    assert message.body == b"moved"
    for queue in ("q", "r"):
        with pytest.raises(InvalidRequest):
            done(store.enqueue, message, queue)
    done(store.enqueue, message, "s")
    done(store.dequeue, moved, "s", None)
    done(store.commit_prepared if committed else store.rollback_prepared, XID)
    for is_second in (False, True):
        if is_second and home.tier >= KEPT:
            store = home.reopen()
        there = store.recover().entries
        is_left = not committed or how == "acquire"
        assert [*there["q"]] == ([moved] if is_left else [])
        assert [*there["r"]] == ([moved] if committed else [])
        assert store.load(moved).body == b"moved"
    if committed:
        assert "string" in there["r"][moved].detail
    else:
        done(store.enqueue, store.load(moved), "r")


def test_a_new_message_of_a_branch_is_its_alone(home: Home) -> None:
    store: Any = home.store
    done(store.create, Queue("r"))
    for durable in (True, False):
        transaction = store.begin()
        message = store.message(HEADER._replace(durable=durable), b"x")
        done(store.enqueue, message, "q", transaction=transaction)
        done(store.prepare, transaction, XID)
        refused(store.enqueue, message, "r", match="belongs to the prepared branch")
        done(store.commit_prepared, XID)
        assert [*entries(store)] == [message.message_id]
        done(store.dequeue, message.message_id, "q", None)


def found(store: Any, xid: Xid | None = None) -> list[BranchFacts]:
    """What the store tells of branches."""
    told: list[Any] = []
    has_come = threading.Event()

    def tell(error: StoreError | None, branches: Sequence[BranchFacts]) -> None:
        told.extend((error, *branches))
        has_come.set()

    store.find_branches(xid, tell)
    assert has_come.wait(TIMEOUT_S)
    assert told.pop(0) is None
    return told


def test_a_coordinator_is_told_what_a_branch_does_to_which_queue_before_it_is_decided(
    home: Home,
) -> None:
    store = home.store
    assert found(store) == []
    done(store.create, Queue("other"))
    branch_of(store, put(store), put(store))
    for number in range(101):
        transaction = store.begin()
        for queue in ("other", "q"):
            message = store.message(HEADER, b"new")
            done(store.enqueue, message, queue, transaction=transaction)
        done(store.prepare, transaction, Xid(1, b"%d" % number, b""))
    first = BranchFacts(XID, "prepared", {"q": 1}, {"q": 1})
    assert found(store, XID) == [first]
    second = BranchFacts(Xid(1, b"0", b""), "prepared", {"other": 1, "q": 1}, {})
    told = {each.xid: each for each in found(store)}
    assert (told[XID], told[second.xid], len(told)) == (first, second, 102)
    done(store.rollback_prepared, XID)
    assert found(store, XID) == []


@pytest.mark.parametrize("commits", [True, False])
def test_a_branch_of_runs_is_few_operations_and_the_same_after_a_restart(
    kept: Home, *, commits: bool
) -> None:
    store = kept.store
    done(store.create, Queue("r"))
    ids = [put(store) for _ in range(9)]
    within = store.begin()
    added = {"x": ("string", "y")}
    run = StoredRun(ids[:4], [store.load(ids[0]).header])
    outcomes(partial(store.enqueue_each, transaction=within, annotations=added), run, "r")
    outcomes(partial(store.dequeue_each, transaction=within), ids[:4], "q", None)
    outcomes(partial(store.acquire_each, transaction=within), ids[5:], "q", "c")
    news = [store.message(HEADER, b"%d" % n) for n in range(3)]
    for message in news:
        done(store.enqueue, message, "q", transaction=within)
    done(store.prepare, within, XID)
    kept.reopen()
    store = kept.store
    (branch,) = store.prepared()
    assert (branch.xid, branch.operations) == (XID, 4 + 4 + 4 + 3)
    done(store.commit_prepared if commits else store.rollback_prepared, XID)
    kept.reopen()
    entries = kept.store.recover().entries
    came = [message.message_id for message in news]
    if commits:
        assert ([*entries["r"]], [*entries["q"]]) == (ids[:4], [*ids[4:], *came])
        assert {entry.detail for entry in entries["r"].values()} == {as_detail(added)}
        assert [kept.store.load(i).body for i in came] == [b"0", b"1", b"2"]
    else:
        assert ([*entries["r"]], [*entries["q"]]) == ([], ids)
    holders = [entries["q"][message_id].acquired_by for message_id in ids[4:]]
    assert [holder is not None for holder in holders] == [False, *[commits] * 4]
    assert {kept.store.load(i).body for i in ids} == {b"old"}


def test_a_branch_is_decided_in_no_transaction(kept: Home) -> None:
    store = kept.store
    branch_of(store, put(store), put(store))
    transaction = store.begin()
    with pytest.raises(InvalidRequest, match="in no transaction"):
        done(store.call, CommitPreparedCall(XID), transaction=transaction)
    done(store.abort, transaction)
    done(store.commit_prepared, XID)
