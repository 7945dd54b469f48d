"""A message is from whom its user-id says, whatever protocol and way it comes by."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import proton
import pytest

from broker_shim.amqp_0_10 import commands as c
from broker_shim.amqp_0_10.structs import DtxXid
from broker_shim.amqp_1_0.composites import (
    Accepted,
    Coordinator,
    Declared,
    Detach,
    Disposition,
    Rejected,
    Target,
    TransactionalState,
)
from broker_shim.broker.storage.store_puts import STAGED_BYTES
from broker_shim.errors import InvalidRequest
from broker_shim.security.guard import Guard, Remote
from broker_shim.security.rules.permissions import rule_of
from broker_shim.security.security_settings import READ_AGAIN, SecuritySettings, read_security
from broker_shim.sockets.access import Access
from broker_shim.store.interface import Queue
from sparkstore.control.audit import AuditEvent
from tests.support.amqp.amqp_0_10 import Bench010, Client010, content
from tests.support.amqp.link_clients import Client, House, Place

RULES = ({"who": ["*"], "address": "#", "allow": ["read", "write", "create"]},)
XID = DtxXid(1, b"g", b"b")


class Door:
    """A broker of both protocols with a queue q; the gateway may send as others."""

    def __init__(self, folder: Path, mechanisms: tuple[str, ...] = ("EXTERNAL", "ANONYMOUS")):
        settings = SecuritySettings(
            permissions=tuple(map(rule_of, RULES)), impersonators=("role:gateway", "gate")
        )
        self.refused: list[dict[str, object]] = []
        self.guard = Guard(settings, mechanisms, self._audit)
        self.house, self.bench = House(Place("memory", folder)), Bench010()
        for each in (self.house, self.bench):
            each.broker.create_queue(Queue("q"), lambda _error: None)
            each.run()

    def _audit(self, event: AuditEvent, **details: object) -> None:
        if event is AuditEvent.PERMISSION_REFUSED:
            self.refused.append(details)

    def close(self) -> None:
        self.house.close()
        self.bench.close()

    def access(self, name: str | None) -> Access:
        return Access(self.guard, Remote("10.0.0.7", 40312, certificate_name=name))

    def new(self, name: str | None, *, address: str | None = "q") -> Client:
        client = Client(self.house, "box", self.access(name))
        client.attach("link", is_receiver=False, target=Target(address))
        return client

    def old(self, name: str | None) -> Client010:
        client = Client010(self.bench, self.access(name))
        self.bench.clients.append(client)
        client.open("ANONYMOUS" if name is None else "EXTERNAL")
        client.attach(b"session %d" % len(self.bench.clients))
        return client

    @property
    def depth(self) -> int:
        """Messages on the queue, of either protocol."""
        return sum(len(each.broker.queues["q"]) for each in (self.house, self.bench))


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    it = Door(tmp_path)
    yield it
    it.close()


def message(user_id: str, body: str = "body") -> bytes:
    told = proton.Message(body, durable=True, address="q")
    told.user_id = user_id.encode()
    return bytes(told.encode())


def outcomes(client: Client) -> list[Any]:
    return [told.state for told, _payload in client.taken(Disposition)]


def single(door: Door, name: str | None, user_id: str) -> bool:
    client = door.new(name)
    client.deliver_encoded(b"1", message(user_id))
    (state,) = outcomes(client)
    return isinstance(state, Accepted)


def by_relay(door: Door, name: str | None, user_id: str) -> bool:
    client = door.new(name, address=None)
    client.deliver_encoded(b"1", message(user_id))
    (state,) = outcomes(client)
    return isinstance(state, Accepted)


def large(door: Door, name: str | None, user_id: str) -> bool:
    staged: list[object] = []
    stage = door.house.calls.puts.stage

    def noted(header: Any) -> Any:
        staged.append(header)
        return stage(header)

    door.house.calls.puts.stage = noted  # type: ignore[method-assign]
    client = door.new(name)
    client.deliver_encoded(b"1", message(user_id, "x" * (STAGED_BYTES + 1)))
    (state,) = outcomes(client)
    assert bool(staged) == isinstance(state, Accepted)  # else nothing is written anywhere
    return isinstance(state, Accepted)


def settled(door: Door, name: str | None, user_id: str) -> bool:
    """What came settled has no outcome: its link ends."""
    client = door.new(name)
    client.deliver_encoded(b"1", message(user_id), settled=True)
    detached = client.taken(Detach)
    assert [str(told.error.condition) for told, _ in detached] in (
        [],
        ["amqp:unauthorized-access"],
    )
    return not detached


def within_transaction(door: Door, name: str | None, user_id: str) -> bool:
    client = door.new(name)
    client.attach("txn", 1, is_receiver=False, target=Coordinator())
    declare = proton.Message(proton.Described(proton.ulong(0x31), []))
    client.deliver_encoded(b"d", bytes(declare.encode()), 1)
    (declared,) = outcomes(client)
    assert isinstance(declared, Declared)
    state = TransactionalState(declared.txn_id)
    client.deliver_encoded(b"1", message(user_id), state=state)
    (told,) = outcomes(client)
    assert isinstance(told.outcome, Accepted | Rejected)
    body = [declared.txn_id, False]
    discharge = proton.Message(proton.Described(proton.ulong(0x32), body))
    client.deliver_encoded(b"c", bytes(discharge.encode()), 1)
    (committed,) = outcomes(client)
    assert isinstance(committed, type(told.outcome))
    return isinstance(told.outcome, Accepted)


def single_0_10(door: Door, name: str | None, user_id: str) -> bool:
    return _sent_0_10(door.old(name), user_id)


def within_tx_0_10(door: Door, name: str | None, user_id: str) -> bool:
    client = door.old(name)
    client.do(c.TxSelect())
    is_sent = _sent_0_10(client, user_id)
    client.do(c.TxCommit())
    return is_sent


def within_dtx_0_10(door: Door, name: str | None, user_id: str) -> bool:
    client = door.old(name)
    client.do(c.DtxSelect())
    client.do(c.DtxStart(XID))
    is_sent = _sent_0_10(client, user_id)
    client.do(c.DtxEnd(XID))
    client.do(c.DtxCommit(XID, one_phase=True))
    return is_sent


def by_exchange_0_10(door: Door, name: str | None, user_id: str) -> bool:
    client = door.old(name)
    client.do(c.ExchangeBind("q", "amq.direct", "k"))
    return _sent_0_10(client, user_id, "k", exchange="amq.direct")


def _sent_0_10(client: Client010, user_id: str, key: str = "q", **where: str) -> bool:
    client.send(key, user_id=user_id.encode(), **where)
    refused = client.of(c.ExecutionException)
    assert [each.error_code for each in refused] in ([], [403])
    return not refused


WAYS: tuple[Callable[[Door, str | None, str], bool], ...] = (
    single,
    by_relay,
    large,
    settled,
    within_transaction,
    single_0_10,
    within_tx_0_10,
    within_dtx_0_10,
    by_exchange_0_10,
)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize(
    ("name", "user_id", "is_taken"),
    [
        ("carol", "carol", True),
        ("carol", "", True),
        ("carol", "alice", False),
        ("carol", "Carol", False),
        ("carol", "anonymous", False),
        (None, "alice", False),
        (None, "anonymous", True),
        ("gate", "alice", True),
    ],
)
def test_a_message_is_from_whom_its_user_id_says(
    door: Door,
    way: Callable[[Door, str | None, str], bool],
    name: str | None,
    user_id: str,
    *,
    is_taken: bool,
) -> None:
    assert way(door, name, user_id) is is_taken
    assert door.depth == int(is_taken)
    told = [(each["user"], each["act"], each["user_id"]) for each in door.refused]
    assert told == [] if is_taken else [(name or "anonymous", "impersonate", user_id)]
    assert door.guard.counts.refused_permissions == (0 if is_taken else 1)


def test_of_many_that_come_together_those_of_others_are_refused(door: Door) -> None:
    client = door.new("carol")
    said = ["carol", "alice", "", "bob", "carol"]
    for number, user_id in enumerate(said):
        client.deliver_encoded(b"%d" % number, message(user_id))
    taken = [isinstance(state, Accepted) for state in outcomes(client)]
    assert taken == [True, False, True, False, True]
    assert door.depth == 3
    assert len(door.refused) == 1  # a line for each link, and a counter
    assert door.guard.counts.refused_permissions == 2


def test_over_0_10_what_came_before_in_the_same_bytes_is_kept(door: Door) -> None:
    client = door.old("carol")
    for user_id in (b"carol", b"alice", b"carol"):
        client.say(c.MessageTransfer(""), **content("q", user_id=user_id))
    door.bench.run()
    assert client.of(c.ExecutionException)[0].error_code == 403
    assert door.depth == 1


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_where_all_are_anonymous_a_user_id_is_its_sender_s_word(
    tmp_path: Path, way: Callable[[Door, str | None, str], bool]
) -> None:
    door = Door(tmp_path, ("ANONYMOUS",))
    assert way(door, None, "guest")
    door.close()


def test_a_user_id_that_is_no_text_is_nobodys(door: Door) -> None:
    client = door.old("carol")
    client.send("q", user_id=b"\xff\xfe")
    assert client.of(c.ExecutionException)[0].error_code == 403


def test_what_is_refused_says_what_to_do(door: Door) -> None:
    client = door.old("carol")
    client.send("q", user_id=b"alice")
    assert client.of(c.ExecutionException)[0].description == (
        "'carol' may not send as 'alice': send with the user-id of the login or without one, or be"
        " named in impersonators of [security]"
    )


def test_gateways_are_read_from_the_settings_and_again_while_the_broker_runs(
    tmp_path: Path, door: Door
) -> None:
    file = tmp_path / "sparkstore.toml"
    rule = '{who = ["*"], address = "#", allow = ["write"]}'
    file.write_text(f'[security]\npermissions = [{rule}]\nimpersonators = ["carol"]\n')
    door.guard.reload(read_security(file))
    assert single(door, "carol", "alice")
    assert not single(door, "gate", "alice")
    assert "impersonators" in READ_AGAIN


@pytest.mark.parametrize("said", ['["role:"]', "[1]", '"carol"'])
def test_impersonators_that_are_none_are_refused(tmp_path: Path, said: str) -> None:
    file = tmp_path / "sparkstore.toml"
    file.write_text(f"[security]\nimpersonators = {said}\n")
    with pytest.raises(InvalidRequest):
        read_security(file)
