"""What every `BrokerStore` promises, each to its tier (`broker_shim/store/interface.py`)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from broker_shim.durability import TerminusDurability
from broker_shim.errors import Closed, InvalidRequest, NotAcquired, StoreError
from broker_shim.store.interface import (
    BrokerStore,
    Exchange,
    ExchangeBindingKey,
    Queue,
    StoredMessage,
    TransactionContext,
)
from broker_shim.store.memory import MemoryMessageStore
from broker_shim.store.remote.remote_store import RemoteMessageStore
from sparkstore.core.annotations import MAX_ANNOTATIONS_BYTES, annotations_of
from tests.support.stores.calls import HEADER, contents, ids, put
from tests.support.stores.stores import MAX_MESSAGE_BYTES, TIMEOUT_S, Home, done

NONE, CONFIGURATION, UNSETTLED_STATE = TerminusDurability
KEY = ExchangeBindingKey("fan", "q", "a.#")
STRANGE_NAMES = [
    "a/b",
    "../../etc/passwd",
    "/",
    "..",
    "a'b\"c`d;--",
    "nul\x00byte",
    "🦊" * 40,
    "x" * 9_000,
    "",
    " ",
    "line\nbreak",
    "flights::late",
]


def _short(name: object) -> str:
    return ascii(name)[:20]


def refused(error: type[StoreError], call: Callable[..., Any], *args: Any, **named: Any) -> None:
    """Assert that a call completes with an error; it spoils the transaction that it was in."""
    with pytest.raises(error):
        done(call, *args, **named)


def acquired_by(store: BrokerStore, message_id: int, queue: str = "q") -> str | None:
    """Who holds a message."""
    return store.recover().entries[queue][message_id].acquired_by


def annotated(store: BrokerStore, message_id: int) -> dict[str, tuple[str, str]]:
    """What the entry of a message adds to its annotations."""
    return annotations_of(store.recover().entries["q"][message_id].detail)


@pytest.fixture
def q(store: BrokerStore) -> BrokerStore:
    """The store, with queues `q` and `other` and the exchange `fan`."""
    for wiring in (Queue("q"), Queue("other"), Exchange("fan", "fanout")):
        done(store.create, wiring)
    return store


# ------------------------------------------------------------------------------- completions


def test_a_completion_fires_once_for_each_call_in_call_order_success_and_refusal_alike(
    q: BrokerStore,
) -> None:
    fired: list[tuple[int, type | None]] = []

    def note(number: int) -> Callable[[StoreError | None], None]:
        return lambda error: fired.append((number, type(error) if error else None))

    expected: list[type | None] = []
    for number in range(0, 60, 6):
        message = q.message(HEADER, b"x")
        transaction = q.begin()
        q.enqueue(message, "q", note(number))
        q.enqueue(message, "nowhere", note(number + 1))
        q.acquire(message.message_id, "q", "c1", note(number + 2), transaction)
        q.acquire(message.message_id, "q", "c2", note(number + 3))
        q.create(Queue("q"), note(number + 4))
        q.commit(transaction, note(number + 5))
        expected += [None, InvalidRequest, None, NotAcquired, None, None]
    done(q.flush)
    assert fired == [*enumerate(expected)]


def test_a_completion_fires_on_another_thread_than_the_callers(q: BrokerStore) -> None:
    threads: list[int] = []
    q.enqueue(q.message(HEADER), "q", lambda _: threads.append(threading.get_ident()))
    q.enqueue(q.message(HEADER), "?", lambda _: threads.append(threading.get_ident()))
    done(q.flush)
    assert len(threads) == 2
    assert threading.get_ident() not in threads


def test_a_completion_may_call_the_store_and_that_call_completes_after_it(q: BrokerStore) -> None:
    order: list[str] = []
    finished = threading.Event()

    def outer(_error: StoreError | None) -> None:
        message = q.message(HEADER, b"from a completion")
        q.enqueue(message, "q", inner)
        assert ids(q)[-1] == message.message_id
        order.append("outer")

    def inner(_error: StoreError | None) -> None:
        order.append("inner")
        finished.set()

    q.enqueue(q.message(HEADER), "q", outer)
    assert finished.wait(TIMEOUT_S)
    assert order == ["outer", "inner"]
    assert len(ids(q)) == 2


def test_a_failing_completion_stops_nobody(
    q: BrokerStore, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(_error: StoreError | None) -> None:
        raise RuntimeError("a broker's bug")

    q.enqueue(q.message(HEADER), "q", fails)
    put(q)
    assert len(ids(q)) == 2
    assert "a broker's bug" in caplog.text


def test_what_a_call_decided_is_seen_by_the_next_call_before_it_is_complete(
    q: BrokerStore,
) -> None:
    errors: list[StoreError | None] = []
    message = q.message(HEADER)
    q.enqueue(message, "q", errors.append)
    q.acquire(message.message_id, "q", "c1", errors.append)
    q.dequeue(message.message_id, "q", "c1", errors.append)
    done(q.flush)
    assert errors == [None, None, None]
    assert ids(q) == []


# ------------------------------------------------------------------------------------ wiring


@pytest.mark.parametrize(
    "wiring",
    [Queue("w", arguments={"n": [1, {"a": None}]}), Exchange("w", "topic", NONE, {"n": 1})],
)
def test_create_again_with_the_same_arguments_succeeds(
    store: BrokerStore, wiring: Queue | Exchange
) -> None:
    done(store.create, wiring)
    before = contents(store)
    done(store.create, wiring)
    assert contents(store) == before


@pytest.mark.parametrize(
    ("wiring", "other"),
    [
        (Queue("w"), Queue("w", arguments={"n": 1})),
        (Queue("w"), Queue("w", NONE)),
        (Exchange("w", "topic"), Exchange("w", "direct")),
        (Exchange("w", "topic"), Exchange("w", "topic", arguments={"n": 1})),
    ],
)
def test_create_again_with_other_arguments_is_refused(
    store: BrokerStore, wiring: Queue | Exchange, other: Queue | Exchange
) -> None:
    done(store.create, wiring)
    before = contents(store)
    refused(InvalidRequest, store.create, other)
    assert contents(store) == before


@pytest.mark.parametrize("arguments", [{"n": object()}, {"n": b"bytes"}, {"n": float("nan")}])
def test_arguments_that_json_cannot_hold_are_refused(
    q: BrokerStore, arguments: dict[str, Any]
) -> None:
    before = contents(q)
    refused(InvalidRequest, q.create, Queue("w", arguments=arguments))
    refused(InvalidRequest, q.bind, KEY, arguments)
    assert contents(q) == before


def test_a_queue_and_an_exchange_may_have_one_name(store: BrokerStore) -> None:
    done(store.create, Queue("w"))
    done(store.create, Exchange("w", "topic"))
    done(store.destroy, Queue("w"))
    assert contents(store)[:2] == ([], [Exchange("w", "topic")])


@pytest.mark.parametrize("wiring", [Queue("w"), Exchange("w", "topic")])
def test_destroy_undoes_create(q: BrokerStore, wiring: Queue | Exchange) -> None:
    before = contents(q)
    done(q.create, wiring)
    assert contents(q) != before
    done(q.destroy, wiring)
    assert contents(q) == before
    refused(InvalidRequest, q.destroy, wiring)


def test_unbind_undoes_bind(q: BrokerStore) -> None:
    before = contents(q)
    done(q.bind, KEY, {"x-match": "all"})
    assert q.recover().bindings == {KEY: {"x-match": "all"}}
    done(q.unbind, KEY)
    assert contents(q) == before
    refused(InvalidRequest, q.unbind, KEY)


def test_bind_again_succeeds_with_the_same_arguments_only(q: BrokerStore) -> None:
    done(q.bind, KEY, {"n": 1})
    done(q.bind, KEY, {"n": 1})
    refused(InvalidRequest, q.bind, KEY, {"n": 2})
    assert q.recover().bindings == {KEY: {"n": 1}}


def test_bind_of_an_unknown_queue_or_exchange_is_refused(q: BrokerStore) -> None:
    refused(InvalidRequest, q.bind, ExchangeBindingKey("fan", "nowhere", ""), {})
    refused(InvalidRequest, q.bind, ExchangeBindingKey("nowhere", "q", ""), {})
    assert q.recover().bindings == {}


@pytest.mark.parametrize("end", [Queue("q"), Exchange("fan", "fanout")])
def test_destroy_of_either_end_takes_its_bindings_and_no_other(
    q: BrokerStore, end: Queue | Exchange
) -> None:
    done(q.create, Exchange("topic", "topic"))
    done(q.bind, KEY, {})
    done(q.bind, ExchangeBindingKey("topic", "other", ""), {})
    done(q.destroy, end)
    assert q.recover().bindings == {ExchangeBindingKey("topic", "other", ""): {}}


@pytest.mark.parametrize("name", STRANGE_NAMES, ids=_short)
def test_any_unicode_text_is_a_name(home: Home, name: str) -> None:
    store = home.store
    key = ExchangeBindingKey(name, name, name)
    done(store.create, Queue(name))
    done(store.create, Exchange(name, "topic"))
    done(store.bind, key, {name: name})
    message_id = put(store, name, b"x")
    done(store.acquire, message_id, name, name)
    expected = contents(store)
    assert store.recover().bindings == {key: {name: name}}
    assert expected[3] == {name: [(message_id, name, 0, 7)]}
    found = contents(home.reopen())
    survives = expected if home.tier else ([], [], {}, {})
    assert found[:3] == survives[:3]


def test_names_are_told_apart_by_every_character(store: BrokerStore) -> None:
    names = ["q", "Q", "q ", "q\x00", "ü", "u\u0308"]
    for name in names:
        done(store.create, Queue(name))
    assert {queue.name for queue in store.recover().queues} == {*names}


@pytest.mark.parametrize("name", ["half \ud83e surrogate", "x" * 10_001], ids=_short)
def test_a_name_that_is_no_unicode_or_too_long_is_refused(q: BrokerStore, name: str) -> None:
    before = contents(q)
    message_id = put(q)
    refused(InvalidRequest, q.create, Queue(name))
    refused(InvalidRequest, q.create, Exchange(name, "topic"))
    refused(InvalidRequest, q.destroy, Queue(name))
    refused(InvalidRequest, q.bind, ExchangeBindingKey("fan", "q", name), {})
    refused(InvalidRequest, q.enqueue, q.message(HEADER), name)
    done(q.dequeue, message_id, "q", None)
    assert contents(q) == before


def test_a_queue_that_is_altered_keeps_what_is_on_it_and_has_the_new_arguments_after_a_restart(
    home: Home,
) -> None:
    for name in ("a::🦊", "beside"):
        done(home.store.create, Queue(name, arguments={"message_ttl_ms": 5}))
    message_id = put(home.store, "a::🦊")
    changed = Queue("a::🦊", arguments={"dead_letter_queue": "beside"})
    for _again in range(2):
        done(home.store.alter, changed)
    assert changed in home.store.recover().queues
    assert ids(home.store, "a::🦊") == [message_id]
    home.reopen()
    if home.tier >= CONFIGURATION:
        kept = {queue.name: queue.arguments for queue in home.store.recover().queues}
        assert kept == {"a::🦊": changed.arguments, "beside": {"message_ttl_ms": 5}}
    if home.tier >= UNSETTLED_STATE:
        assert ids(home.store, "a::🦊") == [message_id]


def test_what_a_queue_is_altered_to_holds_for_what_is_enqueued_from_then_on(
    q: BrokerStore,
) -> None:
    before = put(q)
    done(q.alter, Queue("q", arguments={"message_ttl_ms": 60_000}))
    after = put(q)
    done(q.alter, Queue("q"))
    last = put(q)
    entries = q.recover().entries["q"]
    expiring = [entries[each].expires_at is not None for each in (before, after, last)]
    assert expiring == [False, True, False]


@pytest.mark.parametrize(
    "wrong",
    [
        Queue("absent"),
        Queue("q", CONFIGURATION),
        Queue("q", arguments={"message_ttl_ms": -1}),
        Queue("q", arguments={"dead_letter_queue": "q"}),
        Queue("q", arguments={"n": {1, 2}}),
    ],
    ids=_short,
)
def test_a_queue_that_cannot_be_altered_so_stays_as_it_is(q: BrokerStore, wrong: Queue) -> None:
    before = contents(q)
    refused(InvalidRequest, q.alter, wrong)
    assert contents(q) == before


def test_a_queue_altered_while_a_transaction_is_open_gets_what_that_commits(
    q: BrokerStore,
) -> None:
    transaction = q.begin()
    message = q.message(HEADER, b"body")
    done(q.enqueue, message, "q", transaction=transaction)
    done(q.alter, Queue("q", arguments={"max_delivery_count": 3}))
    done(q.commit, transaction)
    assert ids(q) == [message.message_id]


# ---------------------------------------------------------------------------------- messages


def test_message_ids_rise_from_one_and_a_message_is_nowhere_until_it_is_enqueued(
    q: BrokerStore,
) -> None:
    messages = [q.message(HEADER, b"x") for _ in range(3)]
    assert [message.message_id for message in messages] == [1, 2, 3]
    refused(InvalidRequest, _loads(q), 1)


def test_message_sets_the_lengths_in_its_header(q: BrokerStore) -> None:
    header = q.message(HEADER, b"12345").header
    assert header == HEADER._replace(header_bytes=4, body_bytes=5)


def test_entries_are_in_the_order_of_enqueue_whatever_their_message_ids(q: BrokerStore) -> None:
    first, second, third = (q.message(HEADER) for _ in range(3))
    for message in (second, third, first):
        done(q.enqueue, message, "q")
    assert ids(q) == [2, 3, 1]


def test_dequeue_undoes_enqueue(q: BrokerStore) -> None:
    before = contents(q)
    message_id = put(q)
    assert ids(q) == [message_id]
    done(q.dequeue, message_id, "q", "c1")
    assert contents(q) == before
    refused(InvalidRequest, q.dequeue, message_id, "q", "c1")


def test_a_message_loads_as_it_was_enqueued(q: BrokerStore) -> None:
    message = q.message(HEADER, bytes(range(256)) * 40)
    done(q.enqueue, message, "q")
    loaded = q.load(message.message_id)
    assert (loaded.message_id, loaded.header, loaded.body) == (1, message.header, message.body)


def test_an_empty_message_loads_as_empty(q: BrokerStore) -> None:
    assert q.load(put(q, body=b"")).body == b""


def test_one_message_on_many_queues_keeps_its_content_until_it_left_the_last(
    q: BrokerStore,
) -> None:
    message = q.message(HEADER, b"shared")
    done(q.enqueue, message, "q")
    done(q.enqueue, message, "other")
    done(q.dequeue, message.message_id, "q", None)
    assert q.load(message.message_id).body == b"shared"
    done(q.enqueue, message, "q")
    done(q.dequeue, message.message_id, "other", None)
    assert q.load(message.message_id).header == message.header
    done(q.dequeue, message.message_id, "q", None)
    refused(InvalidRequest, _loads(q), message.message_id)


@pytest.mark.parametrize("first", ["q", "passing"])
def test_content_is_kept_while_a_message_is_on_a_durable_or_a_transient_queue(
    q: BrokerStore, first: str
) -> None:
    done(q.create, Queue("passing", NONE))
    second = {"q": "passing", "passing": "q"}[first]
    message = q.message(HEADER, b"on both")
    for queue in (first, second):
        done(q.enqueue, message, queue)
    for queue in (first, second):
        assert q.load(message.message_id).body == b"on both"
        done(q.dequeue, message.message_id, queue, "c1")
    refused(InvalidRequest, _loads(q), message.message_id)


def test_destroy_of_a_queue_takes_its_entries_and_leaves_the_message_elsewhere(
    q: BrokerStore,
) -> None:
    message = q.message(HEADER, b"x")
    done(q.enqueue, message, "q")
    done(q.enqueue, message, "other")
    gone = put(q)
    done(q.destroy, Queue("q"))
    assert q.load(message.message_id).body == b"x"
    refused(InvalidRequest, _loads(q), gone)
    done(q.create, Queue("q"))
    assert ids(q) == []


def test_enqueue_where_the_message_is_already_is_refused(q: BrokerStore) -> None:
    message = q.message(HEADER)
    done(q.enqueue, message, "q")
    refused(InvalidRequest, q.enqueue, message, "q")
    assert ids(q) == [message.message_id]


def test_a_message_twice_on_a_queue_in_one_transaction_is_refused_and_all_of_it_undone(
    q: BrokerStore,
) -> None:
    message = q.message(HEADER)
    transaction = q.begin()
    for queue in ("other", "q", "q"):
        done(q.enqueue, message, queue, transaction=transaction)
    refused(InvalidRequest, q.commit, transaction)
    assert ids(q) == ids(q, "other") == []


def test_enqueue_of_a_message_that_left_its_last_queue_is_refused(q: BrokerStore) -> None:
    message = q.message(HEADER)
    done(q.enqueue, message, "q")
    done(q.dequeue, message.message_id, "q", None)
    refused(InvalidRequest, q.enqueue, message, "q")
    assert ids(q) == []


def test_a_message_over_the_limit_is_refused_and_one_at_the_limit_is_taken(
    q: BrokerStore,
) -> None:
    refused(InvalidRequest, q.enqueue, q.message(HEADER, bytes(MAX_MESSAGE_BYTES + 1)), "q")
    transaction = q.begin()
    too_large = q.message(HEADER, bytes(MAX_MESSAGE_BYTES + 1))
    refused(InvalidRequest, q.enqueue, too_large, "q", transaction=transaction)
    assert ids(q) == []
    message_id = put(q, body=bytes(MAX_MESSAGE_BYTES))
    assert len(q.load(message_id).body) == MAX_MESSAGE_BYTES


@pytest.mark.parametrize("call", ["acquire", "release", "dequeue"])
def test_an_unknown_queue_or_message_is_refused(q: BrokerStore, call: str) -> None:
    message_id = put(q, "other")
    for target in ((message_id, "nowhere"), (message_id, "q"), (99, "q")):
        refused(InvalidRequest, getattr(q, call), *target, "c1")
        refused(InvalidRequest, getattr(q, call), *target, "c1", transaction=q.begin())
    assert ids(q, "other") == [message_id]


# ------------------------------------------------------------------------- acquire, release


def test_acquire_is_won_by_the_first(q: BrokerStore) -> None:
    message_id = put(q)
    done(q.acquire, message_id, "q", "c1")
    refused(NotAcquired, q.acquire, message_id, "q", "c2")
    refused(NotAcquired, q.acquire, message_id, "q", "c1")
    refused(NotAcquired, q.acquire, message_id, "q", "c2", transaction=q.begin())
    assert acquired_by(q, message_id) == "c1"


def test_release_undoes_acquire(q: BrokerStore) -> None:
    message_id = put(q)
    before = contents(q)
    done(q.acquire, message_id, "q", "c1")
    assert contents(q) != before
    done(q.release, message_id, "q", "c1")
    assert contents(q) == before
    done(q.acquire, message_id, "q", "c2")


def test_release_puts_a_message_back_in_its_old_place(q: BrokerStore) -> None:
    first, second = put(q), put(q)
    done(q.acquire, first, "q", "c1")
    done(q.release, first, "q", "c1", delivery_failed=True)
    assert ids(q) == [first, second]


def test_only_failed_deliveries_are_counted(q: BrokerStore) -> None:
    message_id = put(q)
    for delivery_failed in (True, False, True):
        done(q.acquire, message_id, "q", "c1")
        done(q.release, message_id, "q", "c1", delivery_failed=delivery_failed)
    assert q.recover().entries["q"][message_id].delivery_count == 2


def test_an_entry_may_begin_with_failed_deliveries(home: Home) -> None:
    """Alone and in a transaction, with annotations; a member leaves that to its service."""
    store, told = home.store, {"x-opt-a": ("string", "b")}
    done(store.create, Queue("q"))
    new = [store.message(HEADER, b"body") for _ in range(2)]
    if isinstance(store, RemoteMessageStore):
        with pytest.raises(InvalidRequest, match="a member puts no message with failed"):
            done(store.enqueue, new[0], "q", delivery_count=3)
        return
    done(store.enqueue, new[0], "q", delivery_count=3, annotations=told)
    transaction = store.begin()
    done(store.enqueue, new[1], "q", transaction=transaction, delivery_count=2)
    done(store.commit, transaction)
    counts = [entry.delivery_count for entry in store.recover().entries["q"].values()]
    assert (counts, annotated(store, new[0].message_id)) == ([3, 2], told)
    again = home.reopen()
    if home.tier >= UNSETTLED_STATE:
        assert [e.delivery_count for e in again.recover().entries["q"].values()] == [3, 2]
        assert annotated(again, new[0].message_id) == told


def test_annotations_are_kept_by_the_entry_until_others_are_given(home: Home) -> None:
    store = home.store
    done(store.create, Queue("q"))
    first = {"x-opt-a": ("string", "ü"), "x-opt-b": ("uint", "1")}
    then = {"x-opt-c": ("boolean", "true")}
    message = store.message(HEADER, b"body")
    done(store.enqueue, message, "q", annotations=first)
    assert annotated(store, message.message_id) == first
    for given, expected in ((None, first), (then, then), (None, then)):
        done(store.acquire, message.message_id, "q", "c1")
        done(store.release, message.message_id, "q", "c1", annotations=given)
        assert annotated(store, message.message_id) == expected
    again = home.reopen()
    if home.tier >= UNSETTLED_STATE:
        assert annotated(again, message.message_id) == then


def test_an_entry_tells_whether_it_was_ever_given_back(q: BrokerStore) -> None:
    message_id = put(q)
    assert q.recover().entries["q"][message_id].detail is None
    done(q.acquire, message_id, "q", "c1")
    assert q.recover().entries["q"][message_id].detail is None
    done(q.release, message_id, "q", "c1")
    assert q.recover().entries["q"][message_id].detail == "{}"


def test_annotations_given_in_a_transaction_are_true_at_its_commit(q: BrokerStore) -> None:
    message_id = put(q)
    done(q.acquire, message_id, "q", "c1")
    transaction = q.begin()
    told = {"x-opt-a": ("string", "b")}
    done(q.release, message_id, "q", "c1", transaction=transaction, annotations=told)
    done(q.acquire, message_id, "q", "c2", transaction=transaction)
    done(q.release, message_id, "q", "c2", transaction=transaction)
    assert q.recover().entries["q"][message_id].detail is None
    done(q.commit, transaction)
    assert annotated(q, message_id) == told


@pytest.mark.parametrize(
    "bad",
    [
        {"x-opt-a": ("string", "b" * MAX_ANNOTATIONS_BYTES)},
        {"x-opt-a": "b"},
        {"x-opt-a": ("string", 1)},
        {"x-opt-a": ("string", "\ud800")},
        [("x-opt-a", "b")],
    ],
)
def test_annotations_that_cannot_be_kept_are_refused_and_nothing_is_done(
    q: BrokerStore, bad: Any
) -> None:
    message_id = put(q)
    done(q.acquire, message_id, "q", "c1")
    refused(InvalidRequest, q.release, message_id, "q", "c1", annotations=bad)
    refused(InvalidRequest, q.enqueue, q.message(HEADER, b"x"), "q", annotations=bad)
    assert acquired_by(q, message_id) is not None
    assert ids(q) == [message_id]


def test_release_of_what_is_not_acquired_or_is_anothers_is_refused(q: BrokerStore) -> None:
    message_id = put(q)
    refused(InvalidRequest, q.release, message_id, "q", "c1")
    done(q.acquire, message_id, "q", "c1")
    refused(NotAcquired, q.release, message_id, "q", "c2")
    assert acquired_by(q, message_id) == "c1"


def test_dequeue_of_what_another_holds_is_refused(q: BrokerStore) -> None:
    message_id = put(q)
    done(q.acquire, message_id, "q", "c1")
    for holder in ("c2", None):
        refused(NotAcquired, q.dequeue, message_id, "q", holder)
    done(q.dequeue, message_id, "q", "c1", outcome={"outcome": "rejected"})
    assert ids(q) == []


def test_an_outcome_that_json_cannot_hold_is_refused(q: BrokerStore) -> None:
    message_id = put(q)
    refused(InvalidRequest, q.dequeue, message_id, "q", "c1", outcome={"n": object()})
    assert ids(q) == [message_id]


def test_acquire_on_one_queue_leaves_the_message_available_on_another(q: BrokerStore) -> None:
    message = q.message(HEADER)
    done(q.enqueue, message, "q")
    done(q.enqueue, message, "other")
    done(q.acquire, message.message_id, "q", "c1")
    assert acquired_by(q, message.message_id, "other") is None
    done(q.dequeue, message.message_id, "other", "c2")


# ------------------------------------------------------------------------------ transactions


def test_a_transaction_is_seen_by_nobody_before_its_commit(q: BrokerStore) -> None:
    held, taken, given = put(q), put(q), put(q)
    done(q.acquire, given, "q", "c1")
    before = contents(q)
    transaction = q.begin()
    message = q.message(HEADER, b"new")
    done(q.enqueue, message, "other", transaction=transaction)
    done(q.acquire, held, "q", "c1", transaction=transaction)
    done(q.dequeue, taken, "q", "c1", transaction=transaction)
    done(q.release, given, "q", "c1", transaction=transaction, delivery_failed=True)
    assert contents(q) == before
    done(q.commit, transaction)
    assert contents(q)[3] == {
        "q": [(held, "c1", 0, 7), (given, None, 1, 7)],
        "other": [(message.message_id, None, 0, 7)],
    }
    assert q.load(message.message_id).body == b"new"


def test_abort_undoes_everything(q: BrokerStore) -> None:
    held, taken, given = put(q), put(q), put(q)
    done(q.acquire, given, "q", "c1")
    before = contents(q)
    transaction = q.begin()
    message = q.message(HEADER)
    done(q.enqueue, message, "q", transaction=transaction)
    done(q.acquire, held, "q", "c1", transaction=transaction)
    done(q.dequeue, taken, "q", "c1", transaction=transaction)
    done(q.release, given, "q", "c1", transaction=transaction)
    done(q.abort, transaction)
    assert contents(q) == before
    done(q.acquire, held, "q", "c2")
    done(q.dequeue, taken, "q", "c2")
    done(q.release, given, "q", "c1")
    done(q.enqueue, message, "q")


def test_what_a_transaction_claims_nobody_else_gets_until_its_end(q: BrokerStore) -> None:
    acquired, dequeued = put(q), put(q)
    done(q.acquire, dequeued, "q", "c1")
    transaction, rival = q.begin(), q.begin()
    done(q.acquire, acquired, "q", "c1", transaction=transaction)
    done(q.dequeue, dequeued, "q", "c1", transaction=transaction)
    for message_id in (acquired, dequeued):
        for other in (None, rival):
            refused(NotAcquired, q.acquire, message_id, "q", "c1", transaction=other)
            refused(NotAcquired, q.dequeue, message_id, "q", "c1", transaction=other)
            refused(NotAcquired, q.release, message_id, "q", "c1", transaction=other)
    done(q.commit, transaction)
    assert contents(q)[3]["q"] == [(acquired, "c1", 0, 7)]
    done(q.release, acquired, "q", "c1")


def test_a_transaction_sees_its_own_acquire_and_release(q: BrokerStore) -> None:
    message_id = put(q)
    transaction = q.begin()
    done(q.acquire, message_id, "q", "c1", transaction=transaction)
    done(q.release, message_id, "q", "c1", transaction=transaction, delivery_failed=True)
    done(q.acquire, message_id, "q", "c2", transaction=transaction)
    done(q.release, message_id, "q", "c2", transaction=transaction, delivery_failed=True)
    done(q.commit, transaction)
    assert contents(q)[3]["q"] == [(message_id, None, 2, 7)]


def test_a_transaction_that_acquires_twice_or_takes_twice_is_refused(q: BrokerStore) -> None:
    message_id = put(q)
    first, second = q.begin(), q.begin()
    done(q.acquire, message_id, "q", "c1", transaction=first)
    refused(NotAcquired, q.acquire, message_id, "q", "c1", transaction=first)
    done(q.abort, first)
    done(q.dequeue, message_id, "q", "c1", transaction=second)
    refused(InvalidRequest, q.dequeue, message_id, "q", "c1", transaction=second)
    done(q.abort, second)
    assert contents(q)[3]["q"] == [(message_id, None, 0, 7)]


def test_a_transaction_with_a_refused_operation_cannot_be_committed(q: BrokerStore) -> None:
    """A broker may send the commit before it hears of the refusal: all or nothing holds still."""
    mine, anothers = put(q), put(q)
    done(q.acquire, anothers, "q", "c2")
    before = contents(q)
    for error, call, target in (
        (NotAcquired, q.acquire, (anothers, "q", "c1")),
        (NotAcquired, q.dequeue, (anothers, "q", "c1")),
        (InvalidRequest, q.release, (99, "q", "c1")),
        (InvalidRequest, q.enqueue, (q.message(HEADER), "nowhere")),
    ):
        transaction = q.begin()
        done(q.dequeue, mine, "q", "c1", transaction=transaction)
        done(q.enqueue, q.message(HEADER), "q", transaction=transaction)
        refused(error, call, *target, transaction=transaction)
        refused(InvalidRequest, q.commit, transaction)
        assert contents(q) == before
        refused(InvalidRequest, q.commit, transaction)
    done(q.dequeue, mine, "q", "c1")


def test_one_new_message_goes_on_many_queues_in_one_transaction(home: Home) -> None:
    store = home.store
    for name in ("a", "b", "c"):
        done(store.create, Queue(name))
    transaction = store.begin()
    message = store.message(HEADER, b"one")
    for name in ("a", "b", "c"):
        done(store.enqueue, message, name, transaction=transaction)
    done(store.commit, transaction)
    assert [ids(store, name) for name in ("a", "b", "c")] == [[1], [1], [1]]
    assert store.load(1).body == b"one"
    if home.reopen().durability >= UNSETTLED_STATE:
        assert [ids(home.store, name) for name in ("a", "b", "c")] == [[1], [1], [1]]
        assert home.store.load(1).body == b"one"


def test_a_message_moves_from_queue_to_queue_in_one_transaction(home: Home) -> None:
    store = home.store
    done(store.create, Queue("q"))
    done(store.create, Queue("other"))
    message_id = put(store, body=b"moved")
    transaction = store.begin()
    done(store.dequeue, message_id, "q", "c1", transaction=transaction)
    done(store.enqueue, store.load(message_id), "other", transaction=transaction)
    done(store.commit, transaction)
    assert contents(store)[3] == {"q": [], "other": [(message_id, None, 0, 7)]}
    assert store.load(message_id).body == b"moved"
    if home.reopen().durability >= UNSETTLED_STATE:
        assert home.store.load(message_id).body == b"moved"


@pytest.mark.parametrize("again", [False, True], ids=["gone", "created anew"])
@pytest.mark.parametrize("call", ["enqueue", "dequeue", "acquire", "release"])
def test_commit_after_a_queue_was_destroyed_is_refused_and_undoes_all(
    q: BrokerStore, call: str, again: bool
) -> None:
    mine, theirs, message = put(q), put(q, "other"), q.message(HEADER)
    done(q.acquire, theirs, "other", "c1")
    transaction = q.begin()
    if call == "acquire":
        done(q.release, theirs, "other", "c1")
    target: tuple[Any, ...] = (theirs, "other", "c1")
    done(
        getattr(q, call),
        *((message, "other") if call == "enqueue" else target),
        transaction=transaction,
    )
    done(q.dequeue, mine, "q", "c1", transaction=transaction)
    done(q.destroy, Queue("other"))
    if again:
        done(q.create, Queue("other"))
    refused(InvalidRequest, q.commit, transaction)
    assert contents(q)[3] == {"q": [(mine, None, 0, 7)]} | ({"other": []} if again else {})
    done(q.acquire, mine, "q", "c2")


def test_a_claim_ends_with_its_queue(q: BrokerStore) -> None:
    message = q.message(HEADER)
    done(q.enqueue, message, "q")
    done(q.enqueue, message, "other")
    stale = q.begin()
    done(q.dequeue, message.message_id, "other", "c1", transaction=stale)
    done(q.destroy, Queue("other"))
    done(q.create, Queue("other"))
    done(q.enqueue, message, "other")
    fresh = q.begin()
    done(q.acquire, message.message_id, "other", "c2", transaction=fresh)
    refused(InvalidRequest, q.commit, stale)
    refused(NotAcquired, q.acquire, message.message_id, "other", "c3")
    done(q.commit, fresh)
    assert acquired_by(q, message.message_id, "other") == "c2"


def test_commit_of_an_enqueue_that_another_made_meanwhile_is_refused(q: BrokerStore) -> None:
    mine, message = put(q), q.message(HEADER)
    transaction = q.begin()
    done(q.enqueue, message, "q", transaction=transaction)
    done(q.dequeue, mine, "q", "c1", transaction=transaction)
    done(q.enqueue, message, "q")
    refused(InvalidRequest, q.commit, transaction)
    assert ids(q) == [mine, message.message_id]


def test_a_transaction_that_has_ended_takes_nothing_more(q: BrokerStore) -> None:
    message_id = put(q)
    before = contents(q)
    for end in (q.commit, q.abort):
        transaction = q.begin()
        done(end, transaction)
        refused(InvalidRequest, q.commit, transaction)
        refused(InvalidRequest, q.abort, transaction)
        refused(InvalidRequest, q.acquire, message_id, "q", "c1", transaction=transaction)
        refused(InvalidRequest, q.enqueue, q.message(HEADER), "q", transaction=transaction)
    assert contents(q) == before


def test_transactions_have_numbers_of_their_own(q: BrokerStore) -> None:
    numbers = [q.begin().transaction for _ in range(3)]
    assert len({*numbers}) == 3


def test_a_transaction_of_another_store_is_refused(q: BrokerStore) -> None:
    message_id = put(q)

    class Unknown:
        transaction = 1

    another = MemoryMessageStore()
    transactions: list[TransactionContext] = [Unknown(), another.begin()]
    another.close()
    for foreign in transactions:
        refused(InvalidRequest, q.commit, foreign)
        refused(InvalidRequest, q.abort, foreign)
        refused(InvalidRequest, q.enqueue, q.message(HEADER), "q", transaction=foreign)
        refused(InvalidRequest, q.acquire, message_id, "q", "c1", transaction=foreign)
    assert contents(q)[3]["q"] == [(message_id, None, 0, 7)]


# ------------------------------------------------------------------------------------- stage


@pytest.mark.parametrize("durable", [True, False])
def test_content_staged_in_pieces_is_the_content_in_their_order(home: Home, durable: bool) -> None:
    store = home.store
    done(store.create, Queue("q"))
    pieces = [b"one, ", b"", b"two, ", bytes(1_500_000), b"end"]
    message = done(store.stage, store.message(HEADER._replace(durable=durable)), pieces)
    done(store.enqueue, message, "q")
    loaded = store.load(message.message_id)
    assert loaded.body == b"".join(pieces)
    assert loaded.header.body_bytes == len(loaded.body)
    assert loaded.header.subject == HEADER.subject
    if home.reopen().durability >= UNSETTLED_STATE and durable:
        assert home.store.load(message.message_id).body == b"".join(pieces)


def test_staged_content_over_the_limit_is_refused_and_its_message_is_spoiled(
    q: BrokerStore,
) -> None:
    taken: list[int] = []

    def endless() -> Iterator[bytes]:
        while True:
            taken.append(1)
            yield bytes(1 << 20)

    message = q.message(HEADER)
    refused(InvalidRequest, q.stage, message, endless())
    assert len(taken) == 4
    refused(InvalidRequest, q.enqueue, message, "q")
    assert ids(q) == []


def test_content_of_exactly_the_limit_can_be_staged(q: BrokerStore) -> None:
    message = done(q.stage, q.message(HEADER), [bytes(MAX_MESSAGE_BYTES - 1), b"x"])
    done(q.enqueue, message, "q")
    assert q.load(message.message_id).header.body_bytes == MAX_MESSAGE_BYTES


def test_stage_for_a_message_that_has_its_content_is_refused(q: BrokerStore) -> None:
    message = q.message(HEADER)
    done(q.enqueue, message, "q")
    refused(InvalidRequest, q.stage, message, [b"more"])
    assert q.load(message.message_id).body == b""
    staged = done(q.stage, q.message(HEADER), [b"all"])
    refused(InvalidRequest, q.stage, staged, [b"more"])
    done(q.enqueue, staged, "q")
    assert q.load(staged.message_id).body == b"all"


def test_a_staged_message_goes_on_many_queues_in_a_transaction(q: BrokerStore) -> None:
    message = done(q.stage, q.message(HEADER), [b"a", b"b"])
    transaction = q.begin()
    done(q.enqueue, message, "q", transaction=transaction)
    done(q.enqueue, message, "other", transaction=transaction)
    done(q.commit, transaction)
    done(q.dequeue, message.message_id, "q", None)
    assert q.load(message.message_id).body == b"ab"


def test_a_failing_source_of_pieces_raises_and_leaves_the_store_usable(q: BrokerStore) -> None:
    def broken() -> Iterator[bytes]:
        yield b"first"
        raise ConnectionError("the client went away")

    with pytest.raises(ConnectionError):
        q.stage(q.message(HEADER), broken(), lambda _: None)
    put(q)


# ------------------------------------------------------------------------------------- close


def test_every_call_after_close_raises_closed(q: BrokerStore) -> None:
    message, transaction = q.message(HEADER), q.begin()
    q.close()
    nothing: Callable[[StoreError | None], None] = lambda _: pytest.fail("it completed")  # noqa: E731
    calls: list[Callable[[], object]] = [
        lambda: q.create(Queue("w"), nothing),
        lambda: q.destroy(Queue("q"), nothing),
        lambda: q.bind(KEY, {}, nothing),
        lambda: q.unbind(KEY, nothing),
        lambda: q.configure("c", "k", {}, nothing),
        lambda: q.message(HEADER),
        lambda: q.stage(message, [b"x"], nothing),
        lambda: q.enqueue(message, "q", nothing),
        lambda: q.enqueue(message, "q", nothing, transaction),
        lambda: q.dequeue(1, "q", None, nothing),
        lambda: q.acquire(1, "q", "c", nothing),
        lambda: q.release(1, "q", "c", nothing, transaction),
        q.begin,
        lambda: q.commit(transaction, nothing),
        lambda: q.abort(transaction, nothing),
        lambda: q.flush(nothing),
        q.recover,
        lambda: q.load(1),
    ]
    for call in calls:
        with pytest.raises(Closed):
            call()


def test_close_may_be_called_twice(q: BrokerStore) -> None:
    q.close()
    q.close()


def test_close_completes_what_is_open(q: BrokerStore) -> None:
    errors: list[StoreError | None] = []
    for _ in range(200):
        q.enqueue(q.message(HEADER, b"x"), "q", errors.append)
    q.create(Queue("last"), errors.append)
    q.close()
    assert errors == [None] * 201


@pytest.mark.parametrize("durable", [True, False])
def test_a_store_closed_between_two_pieces_raises_closed(q: BrokerStore, durable: bool) -> None:
    def closing() -> Iterator[bytes]:
        yield b"first"
        q.close()
        yield b"second"

    message = q.message(HEADER._replace(durable=durable))
    with pytest.raises(Closed):
        q.stage(message, closing(), lambda _: pytest.fail("it completed"))


# ----------------------------------------------------------------------------------- threads


def test_of_many_threads_each_message_is_acquired_by_exactly_one(q: BrokerStore) -> None:
    message_ids = [put(q) for _ in range(50)]
    won: list[list[int]] = [[] for _ in range(8)]
    lost = threading.Semaphore(0)

    def consume(number: int) -> None:
        def decided(message_id: int) -> Callable[[StoreError | None], None]:
            return lambda error: won[number].append(message_id) if not error else lost.release()

        for message_id in message_ids:
            q.acquire(message_id, "q", f"c{number}", decided(message_id))

    _together(consume, 8)
    done(q.flush)
    assert sorted(message_id for each in won for message_id in each) == message_ids
    for number, each in enumerate(won):
        assert {acquired_by(q, message_id) for message_id in each} <= {f"c{number}"}
    assert sum(lost.acquire(blocking=False) for _ in range(400)) == 350


def test_many_threads_publish_and_consume_at_once_and_every_completion_fires_in_call_order(
    q: BrokerStore,
) -> None:
    fired: list[list[int]] = [[] for _ in range(6)]

    def work(number: int) -> None:
        def note(turn: int) -> Callable[[StoreError | None], None]:
            return lambda error: fired[number].append(turn if error is None else -turn)

        for turn in range(0, 60, 3):
            message = q.message(HEADER, b"%d" % number)
            transaction = q.begin()
            q.enqueue(message, "q", note(turn), transaction)
            q.commit(transaction, note(turn + 1))
            q.dequeue(message.message_id, "q", None, note(turn + 2))

    _together(work, 6)
    done(q.flush)
    assert fired == [[*range(60)]] * 6
    assert ids(q) == []


def _together(work: Callable[[int], None], count: int) -> None:
    barrier = threading.Barrier(count)

    def start(number: int) -> None:
        barrier.wait(TIMEOUT_S)
        work(number)

    threads = [threading.Thread(target=start, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)


# ------------------------------------------------------------------------------------ reopen


@pytest.mark.parametrize("durability", TerminusDurability)
def test_wiring_survives_a_restart_if_its_durability_and_the_tier_say_so(
    home: Home, durability: TerminusDurability
) -> None:
    store = home.store
    queue, exchange = (
        Queue("w", durability, {"n": 1}),
        Exchange("x", "topic", durability, {"m": []}),
    )
    done(store.create, queue)
    done(store.create, exchange)
    done(store.bind, ExchangeBindingKey("x", "w", "key"), {"b": 2})
    expected = contents(store)
    found = contents(home.reopen())
    survives = min(durability, home.tier) >= CONFIGURATION
    assert found == (expected if survives else ([], [], {}, {}))


@pytest.mark.parametrize(("queue", "exchange"), [(NONE, UNSETTLED_STATE), (CONFIGURATION, NONE)])
def test_a_binding_lives_as_long_as_the_less_durable_of_both_ends(
    home: Home, queue: TerminusDurability, exchange: TerminusDurability
) -> None:
    done(home.store.create, Queue("w", queue))
    done(home.store.create, Exchange("x", "topic", exchange))
    done(home.store.bind, ExchangeBindingKey("x", "w", ""), {})
    found = home.reopen().recover()
    assert found.bindings == {}
    assert len(found.queues) + len(found.exchanges) == (1 if home.tier else 0)


def test_what_was_destroyed_or_unbound_stays_away_after_a_restart(home: Home) -> None:
    store = home.store
    for wiring in (Queue("q"), Queue("w"), Exchange("fan", "fanout"), Exchange("x", "topic")):
        done(store.create, wiring)
    for key in (KEY, ExchangeBindingKey("x", "q", ""), ExchangeBindingKey("fan", "w", "")):
        done(store.bind, key, {})
    done(store.destroy, Queue("w"))
    done(store.destroy, Exchange("x", "topic"))
    done(store.unbind, KEY)
    expected = contents(store)
    assert contents(home.reopen()) == (expected if home.tier else ([], [], {}, {}))


@pytest.mark.parametrize("durability", TerminusDurability)
@pytest.mark.parametrize("durable", [True, False])
def test_a_message_survives_a_restart_if_it_its_queue_and_the_tier_say_so(
    home: Home, durability: TerminusDurability, durable: bool
) -> None:
    store = home.store
    done(store.create, Queue("w", durability))
    message = store.message(HEADER._replace(durable=durable), b"content")
    done(store.enqueue, message, "w")
    done(store.acquire, message.message_id, "w", "c1")
    entries = contents(store)[3]
    found = contents(home.reopen())[3]
    if durable and min(durability, home.tier) >= UNSETTLED_STATE:
        assert found == entries
        loaded = home.store.load(message.message_id)
        assert (loaded.header, loaded.body) == (message.header, message.body)
    else:
        assert found in ({"w": []}, {})
        refused(InvalidRequest, _loads(home.store), message.message_id)


def test_a_restart_keeps_order_holders_and_counts_as_far_as_the_tier_goes(home: Home) -> None:
    store = home.store
    done(store.create, Queue("q"))
    first, second, third, fourth = (put(store) for _ in range(4))
    done(store.acquire, first, "q", "c1")
    done(store.release, first, "q", "c1", delivery_failed=True)
    done(store.acquire, second, "q", "c2")
    done(store.dequeue, third, "q", None)
    expected = [(first, None, 1, 7), (second, "c2", 0, 7), (fourth, None, 0, 7)]
    assert contents(store)[3]["q"] == expected
    if home.reopen().durability >= UNSETTLED_STATE:
        assert contents(home.store)[3]["q"] == expected
        done(home.store.dequeue, second, "q", "c2")
        done(home.store.acquire, first, "q", "c3")


def test_a_message_id_is_never_used_twice_by_a_store_that_keeps_messages(home: Home) -> None:
    store = home.store
    done(store.create, Queue("q"))
    used = [put(store) for _ in range(3)]
    if home.tier >= UNSETTLED_STATE:
        again = home.reopen()
        assert put(again) > max(used)
        assert home.reopen().message(HEADER).message_id > max(used) + 1


def test_an_open_transaction_is_rolled_back_by_a_restart(home: Home) -> None:
    store = home.store
    done(store.create, Queue("q"))
    held, taken, given = put(store), put(store), put(store)
    done(store.acquire, given, "q", "c1")
    before = contents(store)
    transaction = store.begin()
    done(store.enqueue, store.message(HEADER), "q", transaction=transaction)
    done(store.acquire, held, "q", "c1", transaction=transaction)
    done(store.dequeue, taken, "q", "c1", transaction=transaction)
    done(store.release, given, "q", "c1", transaction=transaction)
    if home.reopen().durability >= UNSETTLED_STATE:
        assert contents(home.store) == before
        done(home.store.acquire, held, "q", "c2")


def test_content_that_was_staged_and_never_enqueued_is_forgotten_by_a_restart(home: Home) -> None:
    done(home.store.create, Queue("q"))
    message: StoredMessage = done(
        home.store.stage, home.store.message(HEADER), [b"lost", b"content"]
    )
    store = home.reopen()
    refused(InvalidRequest, _loads(store), message.message_id)


def test_a_store_can_be_reopened_again_and_again(home: Home) -> None:
    expected = []
    for number in range(3):
        name = f"queue {number}"
        done(home.store.create, Queue(name))
        expected.append(Queue(name))
        home.reopen()
        if home.tier < CONFIGURATION:
            expected.clear()
        assert contents(home.store)[0] == expected


def _loads(store: BrokerStore) -> Callable[..., object]:
    """`load`, which is the one call that raises its refusal, as a call that completes with it."""

    def load(message_id: int, on_complete: Callable[[StoreError | None], None]) -> None:
        try:
            store.load(message_id)
        except InvalidRequest as refusal:
            on_complete(refusal)
        else:
            on_complete(None)

    return load


def test_a_message_may_leave_a_queue_and_come_last_on_it_in_one_transaction(home: Home) -> None:
    store = home.store
    done(store.create, Queue("q"))
    first, second = put(store), put(store)
    done(store.acquire, first, "q", "c")
    done(store.release, first, "q", "c", delivery_failed=True)
    transaction = store.begin()
    done(store.dequeue, first, "q", None, transaction=transaction)
    done(store.enqueue, store.load(first), "q", transaction=transaction)
    assert ids(store) == [first, second]
    done(store.commit, transaction)
    assert ids(store) == [second, first]
    assert store.recover().entries["q"][first].delivery_count == 0
    assert store.load(first).body == b"body"
    if home.tier is UNSETTLED_STATE:
        again = home.reopen()
        assert ids(again) == [second, first]
        assert again.load(first).body == b"body"


def test_a_message_cannot_be_put_where_it_is_and_then_be_taken(store: BrokerStore) -> None:
    done(store.create, Queue("q"))
    message_id = put(store)
    transaction = store.begin()
    refused(InvalidRequest, store.enqueue, store.load(message_id), "q", transaction=transaction)
    done(store.abort, transaction)
    assert ids(store) == [message_id]


@pytest.mark.parametrize("wanted", [None, 1, 253_402_300_799_999_999], ids=str)
def test_a_queue_limits_how_long_a_message_stays(home: Home, wanted: int | None) -> None:
    store = home.store
    done(store.create, Queue("q", arguments={"message_ttl_ms": 1_000}))
    message = store.message(HEADER._replace(expires_at=wanted), b"body")
    done(store.enqueue, message, "q")
    entry = store.recover().entries["q"][message.message_id]
    latest = entry.at + 1_000_000
    assert entry.expires_at == (latest if wanted is None else min(wanted, latest))
    if home.tier is UNSETTLED_STATE:
        found = home.reopen().recover().entries["q"][message.message_id]
        assert found.expires_at == entry.expires_at


def test_a_queue_that_cannot_keep_its_arguments_is_not_created(store: BrokerStore) -> None:
    refused(InvalidRequest, store.create, Queue("q", arguments={"message_ttl_ms": "1h"}))
    assert store.recover().queues == []
