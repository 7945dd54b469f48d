"""AMQP 0-10: what comes in one read fares as if each command came by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from operator import itemgetter
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker_shim.amqp_0_10 import commands as c
from broker_shim.amqp_0_10.controls import SessionCommandPoint, SessionCompleted
from broker_shim.completion import OnComplete
from broker_shim.errors import Unavailable
from broker_shim.framing.assembly import Assembly, frames_of
from broker_shim.framing.sequences import numbers_of
from broker_shim.store.interface import Queue
from broker_shim.store.memory import MemoryMessageStore
from sparkstore.core.state_machine.call_values import EnqueueCall, StoreCall
from tests.support.amqp.amqp_0_10 import INFINITE, Bench010, Client010, content
from tests.support.stores.unbatched_calls import UnbatchedCalls


class _Refusing(UnbatchedCalls, MemoryMessageStore):
    """Has no room for some messages, which is told in the order of calls."""

    def call(self, call: StoreCall, on_complete: OnComplete, *more: Any) -> None:
        if isinstance(call, EnqueueCall) and call.message[2] == b"refused":
            self._sink.finish(on_complete, Unavailable("full"))
        else:
            super().call(call, on_complete, *more)


_BODIES = st.sampled_from([b"", b"a", b"bc", b"d" * 70_000, b"refused"])
_TRANSFERS = st.tuples(
    st.sampled_from(["", "", "", "", "amq.direct", "amq.fanout", "none"]),
    st.sampled_from(["q", "q", "q", "r", "r", "nothing"]),
    _BODIES,
    st.sampled_from([0, 0, 1]),
    st.sampled_from([{}, {}, {"priority": 7}, {"delivery_mode": 1}, {"discard_unroutable": True}]),
    st.booleans(),
)
_COMMANDS = st.one_of(
    _TRANSFERS,
    _TRANSFERS,
    _TRANSFERS,
    st.sampled_from(
        [
            c.ExecutionSync(),
            c.TxSelect(),
            c.TxCommit(),
            c.TxRollback(),
            c.QueuePurge("q"),
            c.QueueDelete("r"),
            c.ExchangeBind("q", "amq.fanout", "k"),
            c.ExchangeUnbind("q", "amq.fanout", "k"),
            c.MessageAccept(((0, 1),)),
            c.MessageAccept(((0, 0), (2, 9))),
            c.MessageRelease(((1, 3),)),
            c.MessageCancel("d"),
        ]
    ),
)


def _encoded(said: Any) -> bytes:
    if isinstance(said, tuple):
        exchange, key, body, accept_mode, properties, is_sync = said
        parts = content(key, body, **properties)
        assembly = Assembly(1, c.MessageTransfer(exchange, accept_mode, 0), is_sync, **parts)
    else:
        assembly = Assembly(1, said, isinstance(said, c.ExecutionSync))
    return b"".join(frame.encoded for frame in frames_of(assembly))


def _ready(*, consumes: bool) -> tuple[Bench010, Client010]:
    bench = Bench010(_Refusing())
    bench.broker.create_queue(Queue("r"), lambda _error: None)
    bench.run()
    client = bench.opened()
    client.do(c.ExchangeBind("r", "amq.fanout", "k"))
    if consumes:
        client.subscribe("q")
        client.do(c.MessageSubscribe("r", "settled", 1, 0))
        for unit in (0, 1):
            client.do(c.MessageFlow("settled", unit, INFINITE))
    return bench, client


def _came_of(bench: Bench010, client: Client010) -> dict[str, Any]:
    """What the client was told and the store has; not by how many controls it was told.

    A consumer gets what it is given until its session ends: how much that is, is a matter of time.
    """
    refusals = [each for each in client.told if isinstance(each, c.ExecutionException)]
    if refusals and client.of(c.MessageTransfer):
        return {"refusals": refusals}
    told = [
        repr(part)
        for each in client.told
        if not isinstance(each, _CONTROLS)
        for part in _by_number(each)
    ]
    browser = bench.client()
    browser.open()
    browser.attach(b"browser")
    for name in bench.broker.queues:
        browser.subscribe(name, name, acquire_mode=1)
    left = [(each.destination, body) for each, _number, _header, body in browser.received]
    held = {name: queue.held_count for name, queue in bench.broker.queues.items()}
    return {
        "told": sorted(told),
        "bodies": Counter((t.destination, body) for t, _number, _header, body in client.received),
        "completed": None if refusals else client.completed,
        "left": sorted(left, key=itemgetter(0)),
        "held": held,
        "waiting": client.connection.waiting_bytes,
    }


def _by_number(command: Any) -> Iterator[Any]:
    """A rejection may name several messages; whatever else it is stays as it is."""
    if isinstance(command, c.MessageReject):
        for number in numbers_of(command.transfers):
            yield replace(command, transfers=((number, number),))
    else:
        yield command


def _take_each_by_itself(client: Client010) -> None:
    """From now on frames go through all handlers, and each message to the store by itself."""
    connection = client.connection
    connection._is_bare = False
    (session,) = connection._sessions.values()
    add, hand_over = session.publisher.add, session.publisher.hand_over

    def add_alone(assembly: Assembly) -> None:
        add(assembly)
        hand_over()

    session.publisher.add = add_alone  # type: ignore[method-assign]


_CONTROLS = (SessionCommandPoint, SessionCompleted)
_PLAIN = ("", "q", b"a", 0, {}, False)


@settings(max_examples=60)
@example([_PLAIN, ("", "nothing", b"a", 1, {}, False), _PLAIN], True)
@example([_PLAIN, ("", "r", b"refused", 0, {}, False), _PLAIN, c.ExecutionSync()], False)
@example([_PLAIN, c.TxSelect(), ("", "q", b"bc", 0, {}, False), c.TxCommit()], False)
@example([_PLAIN, *[("amq.direct", "q", b"", 0, {}, True)] * 2], False)
@given(st.lists(_COMMANDS, max_size=10), st.booleans())
def test_commands_of_one_read_fare_as_each_by_itself(said: list[Any], consumes: bool) -> None:
    parts = [*map(_encoded, said), _encoded(c.ExecutionSync())]
    together, client = _ready(consumes=consumes)
    client.write(b"".join(parts))
    together.run()
    unbatched_calls, other = _ready(consumes=consumes)
    _take_each_by_itself(other)
    other.write(b"".join(parts))
    unbatched_calls.run()
    try:
        assert _came_of(together, client) == _came_of(unbatched_calls, other)
    finally:
        together.close()
        unbatched_calls.close()
