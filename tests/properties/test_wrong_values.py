"""Any value in any argument of any call: refused by an error of ours, or good for a restart."""

from __future__ import annotations

import copy
import json
import math
from contextlib import suppress
from pathlib import Path
from typing import Any

from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from broker_shim.durability import TerminusDurability
from broker_shim.errors import StoreError
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import (
    BrokerStore,
    Exchange,
    ExchangeBindingKey,
    LinkKey,
    MessageHeader,
    Queue,
    StoredMessage,
    TransactionContext,
)
from sparkstore.tables import rows
from tests.support.stores.stores import DELTA_CONFIG, RecordedMessageStore, done, read

TERMINI = {"version": 1, "source": None, "target": None, "durability": 2}
LINK = LinkKey("c", "l", "sender")
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([1 << 63, -(1 << 63) - 1, 10**30, math.nan, math.inf, 1.0]),
    st.text(st.characters(), max_size=5),
    st.sampled_from(["\ud800", "\x00", "x" * 200_000, "q", "me", "sender", "{}"]),
    st.binary(max_size=5),
    st.binary(max_size=5).map(bytearray),
    st.builds(object),
    st.complex_numbers(),
    st.datetimes(),
)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
    ),
    max_leaves=4,
)


def _either(right: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Mostly what a call takes, so that wrong values meet right ones."""
    return st.integers(0, 3).flatmap(lambda way: ANYTHING if way == 0 else right)


IDS, QUEUES = _either(st.integers(1, 4)), _either(st.sampled_from(["q", "p", "volatile"]))
HOLDERS = _either(st.sampled_from(["me", "you"]))
OBJECTS = _either(st.dictionaries(st.text(max_size=3), st.integers(0, 3), max_size=2))
NAMES = _either(st.sampled_from(["q", "e", "k"]))
KEYS = _either(st.builds(ExchangeBindingKey, _either(st.just("e")), QUEUES, NAMES))
LINKS = _either(st.just(LINK) | st.builds(LinkKey, NAMES, NAMES, _either(st.just("sender"))))
TAGS = _either(st.binary(max_size=33))
WIRINGS = _either(
    st.builds(Queue, NAMES, _either(st.sampled_from(TerminusDurability)), OBJECTS)
    | st.builds(Exchange, NAMES, NAMES, _either(st.sampled_from(TerminusDurability)), OBJECTS)
)
HEADERS = _either(
    st.dictionaries(st.sampled_from(MessageHeader._fields), ANYTHING, max_size=1).map(
        lambda fields: MessageHeader(**fields)
    )
)
MESSAGES = _either(
    st.builds(StoredMessage, IDS, HEADERS, _either(st.just(b"")), _either(st.just(value=False)))
)
TRANSACTED = {"enqueue", "dequeue", "acquire", "release", "unsettled", "settle"}
CALLS: dict[str, tuple[st.SearchStrategy[Any], ...]] = {
    "message": (HEADERS, _either(st.binary(max_size=3))),
    "enqueue": (MESSAGES, QUEUES),
    "dequeue": (IDS, QUEUES, _either(st.none() | HOLDERS)),
    "acquire": (IDS, QUEUES, HOLDERS),
    "release": (IDS, QUEUES, HOLDERS),
    "create": (WIRINGS,),
    "alter": (WIRINGS,),
    "destroy": (WIRINGS,),
    "bind": (KEYS, OBJECTS),
    "unbind": (KEYS,),
    "configure": (NAMES, NAMES, OBJECTS),
    "attach": (LINKS, _either(st.just(TERMINI))),
    "detach": (LINKS,),
    "unsettled": (LINKS, TAGS, OBJECTS),
    "settle": (LINKS, _either(st.lists(TAGS, max_size=2))),
    "load": (IDS,),
    "at_hand": (_either(st.lists(IDS, max_size=2)),),
    "read": (IDS, _either(st.integers(0, 4)), _either(st.integers(0, 4))),
    "headers": (_either(st.lists(IDS, max_size=2)),),
    "stage": (MESSAGES, _either(st.lists(_either(st.binary(max_size=3)), max_size=2))),
    "content": (MESSAGES,),
    "prefetch": (_either(st.lists(IDS, max_size=2)), _either(st.just(lambda _id, _found: None))),
    "commit": (ANYTHING,),
    "abort": (ANYTHING,),
}
KINDS = _either(st.sampled_from(["string", "uint", "?"]))
ANNOTATIONS = _either(
    st.none()
    | st.dictionaries(
        st.sampled_from(["x-opt-a", "x-opt-death-queue", "\ud800", 1, b"k"]),
        _either(st.tuples(KINDS, _either(st.just("1")))),
        max_size=2,
    )
)
NAMED: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "enqueue": {"annotations": ANNOTATIONS},
    "release": {"delivery_failed": _either(st.booleans()), "annotations": ANNOTATIONS},
    "detach": {"closed": _either(st.booleans())},
    "dequeue": {"outcome": _either(st.none() | OBJECTS)},
}
WITHOUT_COMPLETION = {"message", "load", "at_hand", "read", "headers", "content", "prefetch"}


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, tuple[Any, ...], dict[str, Any], bool]:
    """A call, its arguments, and whether it is within a transaction."""
    name = draw(st.sampled_from(sorted(CALLS)))
    given_ = tuple(draw(each) for each in CALLS[name])
    named = {key: draw(each) for key, each in NAMED.get(name, {}).items()}
    return name, given_, named, name in TRANSACTED and draw(st.booleans())


NEW = StoredMessage(3, MessageHeader(), b"")
"""Made, and on no queue."""
Made = list[tuple[str, tuple[Any, ...], dict[str, Any], bool]]


def _fill(store: BrokerStore) -> None:
    for name in ("q", "p"):
        done(store.create, Queue(name))
    done(store.create, Queue("volatile", TerminusDurability.NONE))
    done(store.create, Exchange("e", "topic"))
    done(store.attach, LINK, TERMINI)
    for _ in range(2):
        done(store.enqueue, store.message(MessageHeader(), b"body"), "q")
    done(store.acquire, 2, "q", "me")
    for _ in range(2):
        store.message(MessageHeader())  # 3 and 4 are made, and on no queue


@settings(max_examples=150)
@given(st.lists(calls(), min_size=1, max_size=6))
@example([("settle", (LINK, [1.5]), {}, True)])
@example([("release", (2, "q", "me"), {"delivery_failed": 1.5}, False)])
@example([("create", (Queue("new", 7),), {}, False)])  # type: ignore[arg-type]
@example([("acquire", (1, "q", 5), {}, True), ("acquire", (1.0, "q", "me"), {}, False)])
@example(
    [
        (
            "enqueue",
            (StoredMessage(3, MessageHeader(), b""), "q"),
            {"annotations": {"x-opt-a": (1, "b")}},
            False,
        )
    ]
)
def test_any_value_is_refused_by_an_error_of_ours_or_survives_a_restart(made: Made) -> None:
    log: list[bytes] = []
    store = RecordedMessageStore(log)
    _fill(store)
    for name, arguments, named, is_transacted in made:
        length, before = len(log), copy.deepcopy(store.machine.state)
        transaction = store.begin() if is_transacted else None
        was_taken = _was_taken(store, name, arguments, named, transaction)
        event(f"{name} was {'taken' if was_taken else 'refused'}")
        if not was_taken and name != "stage":  # pieces before the wrong one lead nowhere
            assert (log[length:], store.machine.state) == ([], before)
    store.close()
    table = rows.to_table(read(log), first_position=1, epoch=1, segment=0)
    table.validate(full=True)
    again = RecordedMessageStore(log)
    for entries in again.recover().entries.values():
        for message_id, entry in entries.items():
            again.load(message_id)
            assert all(map(_is_annotation, json.loads(entry.detail or "{}").values()))
    again.close()


def _is_annotation(value: object) -> bool:
    return isinstance(value, list) and [type(each) for each in value] == [str, str]


def test_no_value_ends_the_store_over_delta_or_keeps_its_root_from_opening(tmp_path: Path) -> None:
    """One root for all: what is acknowledged meets columns only when it is committed."""
    store = DeltaMessageStore(tmp_path / "root", DELTA_CONFIG)
    _fill(store)

    @settings(max_examples=40)
    @given(st.lists(calls(), min_size=1, max_size=6))
    @example([("acquire", (1, "q", 5), {}, False)])
    def call(made: Made) -> None:
        for name, arguments, named, is_transacted in made:
            transaction = store.begin() if is_transacted else None
            _was_taken(store, name, arguments, named, transaction)

    call()
    done(store.create, Queue("last"))
    message = store.message(MessageHeader(), b"last")
    done(store.enqueue, message, "last")
    done(store.flush)  # the committer is alive
    store.close()
    again = DeltaMessageStore(tmp_path / "root", DELTA_CONFIG)
    found = again.recover().entries
    assert [*found["last"]] == [message.message_id]
    for entries in found.values():
        for message_id in entries:
            again.load(message_id)
    again.close()


def _was_taken(
    store: BrokerStore,
    name: str,
    arguments: tuple[Any, ...],
    named: dict[str, Any],
    transaction: TransactionContext | None,
) -> bool:
    """Make a call and, if it was within a transaction, its commit; any other error is a failure."""
    call = getattr(store, name)
    try:
        if name in WITHOUT_COMPLETION:
            call(*arguments, **named)
        elif transaction is None:
            done(call, *arguments, **named)
        else:
            with suppress(StoreError):
                done(call, *arguments, **named, transaction=transaction)
            done(store.commit, transaction)
    except StoreError:
        return False
    return True
