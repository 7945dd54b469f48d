"""What no `BrokerStore` takes: a value of a wrong type, or one that no table can hold."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import pytest

from broker_shim.durability import TerminusDurability
from broker_shim.errors import InvalidRequest
from broker_shim.store.interface import (
    BrokerStore,
    Exchange,
    ExchangeBindingKey,
    LinkKey,
    MessageHeader,
    Queue,
    StoredMessage,
)
from tests.support.stores.calls import HEADER, contents, ids, put
from tests.support.stores.stores import Home, done

HALF = "\ud800"
LONG = "x" * 1_000_000
DEEP: dict[str, Any] = {}
for _ in range(200):
    DEEP = {"in": DEEP}
LINK = LinkKey("c", "l", "sender")
TERMINI = {"version": 1, "source": None, "target": None, "durability": 2}


class Text(str):
    """Text that is no text of ours."""

    __slots__ = ()


class Number(enum.IntEnum):
    """An integer that is none of ours."""

    SEVEN = 7


WRONG_TEXT = [5, b"x", None, ["x"], HALF, Text("q")]
WRONG_NAME = [*WRONG_TEXT, LONG]
WRONG_NUMBER = ["1", 1.0, True, None, 1 << 63, -1, Number.SEVEN, float("nan")]
WRONG_BYTES = ["x", bytearray(b"x"), memoryview(b"x"), 5, None]
WRONG_SWITCH = ["yes", 1, None]
WRONG_OBJECT = [5, "{}", [1], {"a": float("nan")}, {"a": b"x"}, {1: 1, "1": 2}, DEEP]
WRONG_TIME = ["now", 1.5, True, 1 << 62, 1 << 63, -(1 << 62)]
WRONG_HEADERS = [
    None,
    {},
    tuple(HEADER),
    *[HEADER._replace(subject=wrong) for wrong in (5, b"x", ["x"], HALF, Text("x"))],
    *[HEADER._replace(protocol=wrong) for wrong in (5, HALF)],
    *[HEADER._replace(header=wrong) for wrong in (5, "x", bytearray(b"x"))],
    *[HEADER._replace(durable=wrong) for wrong in WRONG_SWITCH],
    *[HEADER._replace(priority=wrong) for wrong in [*WRONG_NUMBER, "high", 10]],
    *[HEADER._replace(created_at=wrong) for wrong in WRONG_TIME],
    *[HEADER._replace(expires_at=wrong) for wrong in WRONG_TIME],
    *[
        HEADER._replace(properties=wrong)
        for wrong in (
            None,
            {"a": "1"},
            [("a", "1")],
            (("a", 1),),
            ((1, "a"),),
            ("ab",),
            (("a", "b", "c"),),
            (("a", HALF),),
            (("a", None),),
        )
    ],
]

Call = Callable[[BrokerStore], object]
WRONG_CALLS: dict[str, list[Call]] = {
    "message": [
        *[lambda s, h=h: s.message(h) for h in WRONG_HEADERS],
        *[lambda s, b=b: s.message(HEADER, b) for b in WRONG_BYTES],
    ],
    "enqueue": [
        *[lambda s, h=h: done(s.enqueue, StoredMessage(1, h, b""), "q") for h in WRONG_HEADERS],
        *[lambda s, b=b: done(s.enqueue, StoredMessage(1, HEADER, b), "q") for b in WRONG_BYTES],
        *[lambda s, i=i: done(s.enqueue, StoredMessage(i, HEADER, b""), "q") for i in WRONG_NUMBER],
        *[lambda s, m=m: done(s.enqueue, m, "q") for m in (None, 5, (1, HEADER, b""))],
        *[lambda s, q=q: done(s.enqueue, s.message(HEADER), q) for q in WRONG_NAME],
        lambda s: done(s.enqueue, s.message(HEADER)._replace(is_staged="yes"), "q"),
        lambda s: done(s.enqueue, s.message(HEADER, b"x")._replace(body=b""), "q"),
        lambda s: done(
            s.enqueue, s.message(HEADER)._replace(header=HEADER._replace(body_bytes=9)), "q"
        ),
        *[lambda s, t=t: done(s.enqueue, s.message(HEADER), "q", transaction=t) for t in (5, "1")],
    ],
    "acquire": [
        *[lambda s, i=i: done(s.acquire, i, "q", "me") for i in WRONG_NUMBER],
        *[lambda s, q=q: done(s.acquire, 1, q, "me") for q in WRONG_NAME],
        *[lambda s, h=h: done(s.acquire, ids(s)[0], "q", h) for h in WRONG_NAME],
        *[lambda s, t=t: done(s.acquire, ids(s)[0], "q", "me", transaction=t) for t in (5, "1")],
    ],
    "dequeue": [
        *[lambda s, i=i: done(s.dequeue, i, "q", None) for i in WRONG_NUMBER],
        *[lambda s, q=q: done(s.dequeue, 1, q, None) for q in WRONG_NAME],
        *[
            lambda s, h=h: done(s.dequeue, ids(s)[0], "q", h)
            for h in (5, b"x", ["x"], HALF, LONG, Text("x"))
        ],
        *[lambda s, o=o: done(s.dequeue, ids(s)[0], "q", None, outcome=o) for o in WRONG_OBJECT],
    ],
    "release": [
        *[lambda s, i=i: done(s.release, i, "q", "me") for i in WRONG_NUMBER],
        *[lambda s, h=h: done(s.release, ids(s)[1], "q", h) for h in WRONG_NAME],
        *[
            lambda s, d=d: done(s.release, ids(s)[1], "q", "me", delivery_failed=d)
            for d in ("yes", 1, 1.5, None)
        ],
    ],
    "definition": [
        *[lambda s, n=n: done(s.create, Queue(n)) for n in WRONG_NAME],
        *[lambda s, n=n: done(s.create, Exchange(n, "topic")) for n in WRONG_NAME],
        *[lambda s, t=t: done(s.create, Exchange("e", t)) for t in WRONG_NAME],
        *[lambda s, d=d: done(s.create, Queue("new", d)) for d in (2, 7, "2", None, True)],
        *[
            lambda s, a=a: done(s.create, Queue("new", arguments=a))
            for a in (*WRONG_OBJECT, None, {"message_ttl_ms": "1"})
        ],
        *[lambda s, w=w: done(s.create, w) for w in (None, "q", ("q",))],
        *[lambda s, w=w: done(s.destroy, w) for w in (None, "q", Queue(5), Queue(["q"]))],
        *[
            lambda s, w=w: done(s.alter, w)
            for w in (
                None,
                "q",
                Exchange("e", "t"),
                Queue(5),
                Queue("q", 2),
                Queue("q", arguments=5),
            )
        ],
    ],
    "binding": [
        *[lambda s, n=n: done(s.bind, ExchangeBindingKey("e", "q", n), {}) for n in WRONG_NAME],
        *[lambda s, n=n: done(s.bind, ExchangeBindingKey(n, "q", "k"), {}) for n in WRONG_NAME],
        *[lambda s, a=a: done(s.bind, ExchangeBindingKey("e", "q", "k"), a) for a in WRONG_OBJECT],
        *[lambda s, k=k: done(s.bind, k, {}) for k in (None, ("e", "q", "k"), "k")],
        *[
            lambda s, k=k: done(s.unbind, k)
            for k in (None, ("e", "q", "k"), ExchangeBindingKey([], "q", "k"))
        ],
    ],
    "configure": [
        *[lambda s, n=n: done(s.configure, n, "k", {}) for n in WRONG_NAME],
        *[lambda s, n=n: done(s.configure, "c", n, {}) for n in WRONG_NAME],
        *[lambda s, o=o: done(s.configure, "c", "k", o) for o in WRONG_OBJECT],
    ],
    "link": [
        *[lambda s, n=n: done(s.attach, LinkKey(n, "l", "sender"), TERMINI) for n in WRONG_NAME],
        *[lambda s, n=n: done(s.attach, LinkKey("c", n, "sender"), TERMINI) for n in WRONG_NAME],
        *[
            lambda s, n=n: done(s.attach, LinkKey("c", "l", n), TERMINI)
            for n in (*WRONG_NAME, "both")
        ],
        *[lambda s, k=k: done(s.attach, k, TERMINI) for k in (None, ("c", "l", "sender"))],
        *[lambda s, o=o: done(s.attach, LINK, o) for o in (*WRONG_OBJECT, None)],
        *[lambda s, c=c: done(s.detach, LINK, closed=c) for c in WRONG_SWITCH],
        *[lambda s, t=t: done(s.unsettled, LINK, t, None) for t in (*WRONG_BYTES, 1.5)],
        *[lambda s, o=o: done(s.unsettled, LINK, b"t", o) for o in WRONG_OBJECT],
        *[lambda s, t=t: done(s.settle, LINK, t) for t in (None, 5, b"tag", ["t"], [1.5], [None])],
    ],
    "transaction": [
        *[lambda s, t=t: done(s.commit, t) for t in (None, 5, "1", object())],
        *[lambda s, t=t: done(s.abort, t) for t in (None, 5, "1", object())],
    ],
    "read": [
        *[lambda s, i=i: s.load(i) for i in WRONG_NUMBER],
        *[lambda s, i=i: s.at_hand(i) for i in (5, None, "12", b"12", ["1"], [None], [True])],
        *[lambda s, i=i: s.read(i, 0, 1) for i in WRONG_NUMBER],
        *[lambda s, n=n: s.read(ids(s)[0], n, 1) for n in WRONG_NUMBER],
        *[lambda s, n=n: s.read(ids(s)[0], 0, n) for n in WRONG_NUMBER],
        *[lambda s, i=i: s.headers(i) for i in (5, None, "12", b"12", ["1"], [None], [True])],
        *[lambda s, i=i: s.prefetch(i, print) for i in (5, None, "12", ["1"], [1.0])],
        lambda s: s.prefetch([1], None),
    ],
    "content": [
        *[lambda s, m=m: s.content(m) for m in (None, 5, StoredMessage(1, None, b""))],
        *[lambda s, m=m: done(s.stage, m, [b"x"]) for m in (None, 5)],
        *[
            lambda s, p=p: done(s.stage, s.message(HEADER), p)
            for p in (5, None, "abc", b"abc", ["x"], [bytearray(b"x")], [memoryview(b"x")], [None])
        ],
        *[lambda s, p=p: done(s.content(s.message(HEADER)).add, p) for p in WRONG_BYTES],
    ],
    "completion": [
        lambda s: s.create(Queue("new"), None),
        lambda s: s.enqueue(s.message(HEADER), "q", 5),
        lambda s: s.acquire(ids(s)[0], "q", "me", "nobody"),
        lambda s: s.commit(s.begin(), None),
        lambda s: s.flush(None),
    ],
}


def refusal_of(call: Call, store: BrokerStore) -> str | None:
    """What a call was refused with; None if it was taken."""
    try:
        call(store)
    except InvalidRequest as refusal:
        return str(refusal)
    return None


def test_a_wrong_value_is_refused_at_the_call_and_nothing_has_changed(home: Home) -> None:
    done(home.store.create, Queue("q"))
    done(home.store.create, Exchange("e", "topic"))
    done(home.store.attach, LINK, TERMINI)
    put(home.store)
    done(home.store.acquire, put(home.store), "q", "me")
    before = contents(home.store)
    for what, calls in WRONG_CALLS.items():
        for number, call in enumerate(calls):
            told = refusal_of(call, home.store)
            assert told is not None, f"call {number} of {what} was taken"
            assert len(told) < 300, "the caller's value is not echoed"
            assert contents(home.store) == before, f"call {number} of {what}"
    is_kept = home.tier is TerminusDurability.UNSETTLED_STATE
    home.reopen()
    if is_kept:
        assert contents(home.store) == before
    done(home.store.create, Queue("q"))
    put(home.store)


@pytest.mark.parametrize("what", ["enqueue", "acquire", "dequeue", "release"])
def test_a_wrong_value_in_a_transaction_is_refused_at_the_call(home: Home, what: str) -> None:
    store = home.store
    done(store.create, Queue("q"))
    kept, held = put(store), put(store)
    done(store.acquire, held, "q", "me")
    wrong: dict[str, tuple[Any, ...]] = {
        "enqueue": (store.message(HEADER)._replace(header=HEADER._replace(to=5)), "q"),
        "acquire": (kept, "q", 5),
        "dequeue": (held, "q", ["me"]),
        "release": (held, "q", 5),
    }
    before = contents(store)
    transaction = store.begin()
    with pytest.raises(InvalidRequest):
        done(getattr(store, what), *wrong[what], transaction=transaction)
    with pytest.raises(InvalidRequest, match="abort"):
        done(store.commit, transaction)
    assert contents(store) == before


def test_a_value_at_each_limit_survives(home: Home) -> None:
    header = MessageHeader(
        header=b"",
        priority=9,
        created_at=-62_135_596_800_000_000,
        expires_at=253_402_300_799_999_999,
        subject="nul\x00",
        to=LONG,
        properties=(("", ""), ("🦊", "x" * 100_000)),
    )
    done(home.store.create, Queue("q", arguments={"half": HALF, "deep": [[[1]]], "big": 1 << 70}))
    message = home.store.message(header, b"x")
    done(home.store.enqueue, message, "q")
    done(home.store.acquire, message.message_id, "q", "nul\x00 🦊" * 100)
    is_kept = home.tier is TerminusDurability.UNSETTLED_STATE
    before = contents(home.store)
    home.reopen()
    if is_kept:
        assert contents(home.store) == before
        assert home.store.load(message.message_id).header == message.header
