"""Exchanges of AMQP 0-10 that delete themselves, and those that a restart forgets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker_shim.amqp_0_10.commands import (
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeQuery,
    ExchangeUnbind,
    ExecutionException,
    ExecutionResult,
    MessageCancel,
    QueueDeclare,
    QueueDelete,
)
from broker_shim.amqp_0_10.controls import SessionDetach
from broker_shim.durability import TerminusDurability
from broker_shim.store.delta import DeltaMessageStore
from sparkstore.operations.administration import AdminAction, Order
from tests.support.amqp.amqp_0_10 import Bench010, Client010

NONE, WHOLE = TerminusDurability.NONE, TerminusDurability.UNSETTLED_STATE


@pytest.fixture
def bench() -> Iterator[Bench010]:
    it = Bench010()
    yield it
    it.close()


def declare(client: Client010, kind: str = "direct", **said: Any) -> None:
    client.do(ExchangeDeclare("e", kind, auto_delete=True, **said))
    assert client.of(ExecutionException) == []


def unbind(client: Client010) -> None:
    client.do(ExchangeUnbind("q", "e", "k"))


def delete_queue(client: Client010) -> None:
    client.do(QueueDelete("q"))


def remove_binding(client: Client010) -> None:
    """An administrator does."""
    order = Order(AdminAction.REMOVE_BINDING, "q", "e", "k", force=True)
    refusals: list[Any] = []
    client._bench.broker.administration.order(order, lambda error, _told: refusals.append(error))
    client._bench.run()
    assert refusals == [None]


@pytest.mark.parametrize("kind", ["direct", "fanout", "topic", "headers"])
@pytest.mark.parametrize("end", [unbind, delete_queue, remove_binding])
def test_an_exchange_that_deletes_itself_goes_with_its_last_binding(
    bench: Bench010, kind: str, end: Any
) -> None:
    client = bench.opened()
    declare(client, kind)
    client.do(QueueDeclare("second"))
    arguments = {"x-match": "all", "a": 1} if kind == "headers" else None
    client.do(ExchangeBind("q", "e", "k", arguments))
    client.do(ExchangeBind("second", "e", "k"))
    client.do(ExchangeUnbind("second", "e", "k"))
    assert "e" in bench.broker.router
    end(client)
    client.do(ExchangeQuery("e"))
    assert client.of(ExecutionResult)[-1].value.not_found
    client.do(ExchangeDeclare("e", kind))  # the store would refuse it if it had the old one
    assert client.of(ExecutionException) == []


def test_an_exchange_goes_with_the_queues_of_the_session_that_bound_them(bench: Bench010) -> None:
    client = bench.opened()
    declare(client)
    client.do(QueueDeclare("own", exclusive=True, auto_delete=True))
    client.do(ExchangeBind("own", "e", "k"))
    client.do(SessionDetach(b"session"))
    assert "e" not in bench.broker.router


def test_an_exchange_goes_with_a_queue_that_goes_with_its_last_subscriber(bench: Bench010) -> None:
    client = bench.opened()
    declare(client)
    client.do(QueueDeclare("brief", auto_delete=True))
    client.do(ExchangeBind("brief", "e", "k"))
    client.subscribe("brief")
    client.do(MessageCancel("d"))
    assert "e" not in bench.broker.router


def test_what_binds_in_the_turn_after_is_told_that_there_is_none(bench: Bench010) -> None:
    """A binding is never acknowledged, and then taken away by the deletion."""
    client = bench.opened()
    declare(client)
    client.do(ExchangeBind("q", "e", "k"))
    client.say(ExchangeUnbind("q", "e", "k"))
    number = client.do(ExchangeBind("q", "e", "again"), sync=True)
    (refusal,) = client.of(ExecutionException)
    assert refusal.command_id == number
    assert "unknown exchange 'e'" in (refusal.description or "")
    assert "e" not in bench.broker.router


def test_an_exchange_that_never_had_a_binding_or_is_not_asked_to_stays(bench: Bench010) -> None:
    client = bench.opened()
    declare(client)
    client.do(ExchangeUnbind("q", "amq.direct", "none"))
    client.attach()
    client.next_id = 0
    client.do(ExchangeDeclare("stays", "direct"))
    client.do(ExchangeBind("q", "stays", "k"))
    client.do(ExchangeUnbind("q", "stays", "k"))
    assert {"e", "stays"} <= {*bench.broker.router.definitions}


def test_an_alternate_exchange_stays_though_nothing_is_bound_to_it(bench: Bench010) -> None:
    client = bench.opened()
    declare(client)
    client.do(ExchangeDeclare("first", "direct", alternate_exchange="e"))
    client.do(ExchangeBind("q", "e", "k"))
    unbind(client)
    assert "e" in bench.broker.router
    client.do(ExchangeDelete("first"))
    client.do(ExchangeBind("q", "e", "k"))
    unbind(client)
    assert "e" not in bench.broker.router


@pytest.mark.parametrize(("durable", "kept"), [(True, WHOLE), (False, NONE)])
def test_an_exchange_survives_a_restart_if_it_was_declared_durable(
    tmp_path: Path, durable: bool, kept: TerminusDurability
) -> None:
    store = DeltaMessageStore(tmp_path / "root")
    bench = Bench010(store)
    client = bench.opened()
    client.do(QueueDeclare("lasting", durable=True))
    client.do(ExchangeDeclare("e", "direct", durable=durable))
    client.do(ExchangeBind("lasting", "e", "k"))
    client.do(ExchangeQuery("e"))
    assert client.of(ExecutionResult)[-1].value.durable is durable
    assert bench.broker.router.definitions["e"].durability is kept
    client.send("k", exchange="e")
    assert len(bench.broker.queues["lasting"]) == 1
    bench.close()
    store.close()
    again = DeltaMessageStore(tmp_path / "root")
    recovered = again.recover()
    assert [each.name for each in recovered.exchanges if each.name == "e"] == ["e"] * durable
    assert [key.exchange for key in recovered.bindings if key.exchange == "e"] == ["e"] * durable
    again.close()
