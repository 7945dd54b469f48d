"""A queue with a window drops what came before: for each call, over restarts, and no other."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from broker_shim.errors import Full, InvalidRequest
from broker_shim.serve.metric_families import log_families
from broker_shim.store.branch_store import Xid
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import MessageHeader, NewMessageRun, Queue
from broker_shim.store.json.json_store import JsonMessageStore
from tests.support.stores.stores import DELTA_CONFIG, done

MINUTE_MS, MINUTE_US = 60_000, 60_000_000
NOW_US = 1_750_000_000_000_000


class Duplicated:
    """A store whose clock the test sets."""

    def __init__(self, path: Path) -> None:
        self.path, self.now_us = path / "root", NOW_US
        self.open()
        done(self.store.create, Queue("q", arguments={"duplicate_window_ms": MINUTE_MS}))
        done(self.store.create, Queue("plain"))

    def open(self) -> None:
        self.store = DeltaMessageStore(self.path, DELTA_CONFIG, lambda: self.now_us)

    def put(self, identity: str | None, queue: str = "q") -> int:
        message = self.store.message(MessageHeader("x", amqp_message_id=identity), b"body")
        done(self.store.enqueue, message, queue)
        return message.message_id

    def is_there(self, message_id: int, queue: str = "q") -> bool:
        return message_id in self.store.recover().entries[queue]

    def comes(self, identity: str | None) -> bool:
        """Whether a message of this id is put on the queue; it is taken off."""
        message_id = self.put(identity)
        if not self.is_there(message_id):
            return False
        done(self.store.dequeue, message_id, "q", None)
        return True


@pytest.fixture
def it(tmp_path: Path) -> Iterator[Duplicated]:
    made = Duplicated(tmp_path)
    yield made
    made.store.close()


def test_an_id_is_known_until_its_window_is_over(it: Duplicated) -> None:
    assert it.comes("a")
    it.now_us += MINUTE_US - 1
    assert not it.comes("a")
    it.now_us += 1
    assert it.comes("a")
    assert not it.comes("a")
    assert [it.comes(None) for _ in range(3)] == [True] * 3


def test_a_clock_that_was_set_back_an_hour_forgets_nothing(it: Duplicated) -> None:
    assert it.comes("a")
    it.now_us -= 60 * MINUTE_US
    assert not it.comes("a")
    assert it.comes("b")
    assert not it.comes("b")
    it.now_us += MINUTE_US
    assert it.comes("b")
    assert not it.comes("a")


def test_an_id_is_known_after_a_restart_and_a_kill(it: Duplicated, tmp_path: Path) -> None:
    """Of what was consumed, too; what a kill leaves is in the write-ahead log alone."""
    assert it.comes("a")
    assert it.comes("b")
    it.store.close()
    it.open()
    assert not it.comes("a")
    assert it.comes("c")
    shutil.copytree(it.path, tmp_path / "killed")
    killed, was = DeltaMessageStore(tmp_path / "killed", DELTA_CONFIG, lambda: it.now_us), it.store
    it.store = killed
    with closing(killed):
        assert [it.comes(each) for each in "abcd"] == [False, False, False, True]
    it.store = was
    it.now_us += MINUTE_US
    it.store.close()
    it.open()
    assert [it.comes(each) for each in "abcd"] == [True] * 4


def test_what_was_refused_or_undone_is_not_known(it: Duplicated) -> None:
    limited = {"duplicate_window_ms": MINUTE_MS, "max_depth": 1}
    done(it.store.alter, Queue("q", arguments=limited))
    first = it.put("a")
    with pytest.raises(Full):
        it.put("b")
    assert not it.is_there(it.put("a"))  # it needs no room
    done(it.store.dequeue, first, "q", None)
    transaction = it.store.begin()
    header = MessageHeader("x", amqp_message_id="b")
    for _ in range(2):
        done(it.store.enqueue, it.store.message(header, b"1"), "q", transaction=transaction)
    done(it.store.abort, transaction)
    assert it.comes("b")


def test_the_calls_of_a_batch_and_a_transaction_see_each_other(it: Duplicated) -> None:
    headers = [MessageHeader("x", amqp_message_id=each) for each in "aab"]
    told: list[object] = []
    ids = it.store.enqueue_new(NewMessageRun(headers, [b"1"] * 3, "q"), told.extend)
    done(it.store.flush)
    assert told == [None] * 3
    assert [it.is_there(each) for each in ids] == [True, False, True]
    transaction = it.store.begin()
    made = [it.store.message(MessageHeader("x", amqp_message_id=each), b"1") for each in "bcc"]
    for message in made:
        done(it.store.enqueue, message, "q", transaction=transaction)
        done(it.store.enqueue, message, "plain", transaction=transaction)
    done(it.store.commit, transaction)
    assert [it.is_there(each.message_id) for each in made] == [False, True, False]
    assert [it.store.load(each.message_id).body for each in made] == [b"1"] * 3
    assert all(it.is_there(each.message_id, "plain") for each in made)
    it.store.close()
    it.open()
    assert [it.store.load(each.message_id).body for each in made] == [b"1"] * 3


def test_what_is_moved_is_no_duplicate(it: Duplicated) -> None:
    assert it.comes("a")
    message_id = it.put("a", "plain")
    done(it.store.enqueue, it.store.load(message_id), "q")
    assert it.is_there(message_id)


def test_a_queue_that_is_made_anew_knows_nothing(it: Duplicated) -> None:
    assert it.comes("a")
    done(it.store.destroy, Queue("q"))
    done(it.store.create, Queue("q", arguments={"duplicate_window_ms": MINUTE_MS}))
    assert it.comes("a")


def test_duplicates_are_counted_by_queue(it: Duplicated) -> None:
    for _ in range(3):
        it.comes("a")
    found = {
        sample.labels["queue"]: sample.value
        for family in log_families(it.store)
        for sample in family.samples
        if sample.name == "sparkstore_queue_dropped_total"
        and sample.labels["reason"] == "duplicate"
    }
    assert found == {"q": 2.0}


def test_content_that_came_in_pieces_is_left_out_of_a_duplicate(it: Duplicated) -> None:
    assert it.comes("a")
    header = MessageHeader("x", amqp_message_id="a")
    staged = done(it.store.stage, it.store.message(header), [b"1", b"2"])
    done(it.store.enqueue, staged, "q")
    assert not it.is_there(staged.message_id)
    with pytest.raises(InvalidRequest):
        it.store.load(staged.message_id)


def test_what_a_restart_loses_is_forgotten_with_it(it: Duplicated, tmp_path: Path) -> None:
    """A sender that sends again what was lost with a broker is not taken for its own double."""
    header = MessageHeader("x", amqp_message_id="a", durable=False)

    def puts_one(store: JsonMessageStore | DeltaMessageStore) -> bool:
        message = store.message(header, b"body")
        done(store.enqueue, message, "q")
        return message.message_id in store.recover().entries["q"]

    assert [puts_one(it.store), puts_one(it.store)] == [True, False]
    it.store.close()
    it.open()
    assert puts_one(it.store)
    kept = JsonMessageStore(tmp_path / "wiring.json")
    done(kept.create, Queue("q", arguments={"duplicate_window_ms": MINUTE_MS}))
    assert [puts_one(kept), puts_one(kept)] == [True, False]
    kept.close()
    with closing(JsonMessageStore(tmp_path / "wiring.json")) as again:
        assert puts_one(again)


def test_a_duplicate_of_a_prepared_branch_is_on_its_other_queue(it: Duplicated) -> None:
    assert it.comes("a")
    within, xid = it.store.begin(), Xid(1, b"g", b"b")
    message = it.store.message(MessageHeader("x", amqp_message_id="a"), b"content")
    for queue in ("q", "plain"):
        done(it.store.enqueue, message, queue, transaction=within)
    done(it.store.prepare, within, xid)
    it.store.close()
    it.open()
    done(it.store.commit_prepared, xid)
    it.store.close()
    it.open()
    assert not it.is_there(message.message_id)
    assert it.is_there(message.message_id, "plain")
    assert it.store.load(message.message_id).body == b"content"
