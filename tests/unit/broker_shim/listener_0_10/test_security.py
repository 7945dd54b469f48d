"""How clients of AMQP 0-10 get in, and what they may do: by the rules of the 1.0 listener."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from scramp import ScramClient

from broker_shim.amqp_0_10.commands import DtxEnd as End
from broker_shim.amqp_0_10.commands import (
    DtxPrepare,
    DtxRecover,
    DtxRollback,
    DtxSelect,
    DtxStart,
    ExchangeDeclare,
    ExecutionException,
    ExecutionResult,
    MessageSubscribe,
    MessageTransfer,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    QueueQuery,
)
from broker_shim.amqp_0_10.controls import (
    ConnectionClose,
    ConnectionOpen,
    ConnectionSecure,
    ConnectionSecureOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTuneOk,
)
from broker_shim.amqp_0_10.structs import DtxXid
from broker_shim.broker.orders.administration import OnPurged, OnTold
from broker_shim.broker.settings import BrokerSettings
from broker_shim.framing.frames import PROTOCOL_HEADER
from broker_shim.security.guard import Guard, Remote
from broker_shim.security.passwords import secrets_of
from broker_shim.security.rules.permissions import rule_of
from broker_shim.security.rules.users import LEAST_ITERATIONS, User
from broker_shim.security.security_settings import SecuritySettings
from broker_shim.security.users_file import changing_users
from broker_shim.sockets.access import Access
from sparkstore.control.audit import AuditEvent
from sparkstore.operations.administration import Order
from tests.support.amqp.amqp_0_10 import Bench010, Client010, content

XID = DtxXid(1, b"g", b"b")


@pytest.fixture
def bench() -> Iterator[Bench010]:
    it = Bench010(settings=BrokerSettings(max_connections_per_user=2))
    yield it
    it.close()


class Door:
    """What lets clients in, and what is written down of them."""

    def __init__(self, bench: Bench010, users: Path, *names: str) -> None:
        self.bench = bench
        self.events: list[tuple[AuditEvent, object]] = []
        rules = [
            {"who": ["ann"], "address": "*", "allow": ["read", "write", "create", "delete"]},
            {"who": ["bob"], "address": "q", "allow": ["write"]},
            {"who": ["bob"], "address": "of-bob", "allow": ["read", "write", "create"]},
        ]
        permissions = tuple(map(rule_of, rules))
        settings = SecuritySettings(str(users), permissions=permissions, failed_login_delay_s=0)
        self.guard = Guard(settings, names, self._audit)

    def _audit(self, event: AuditEvent, **details: object) -> None:
        self.events.append((event, details.get("user")))

    def client(self, certificate_name: str | None = None) -> Client010:
        remote = Remote("10.0.0.7", 40312, "TLSv1.3", certificate_name)
        found = Client010(self.bench, Access(self.guard, remote))
        self.bench.clients.append(found)
        return found

    def opened(self, name: str, session: bytes = b"session") -> Client010:
        found = self.client()
        found.open("PLAIN", b"\0%s\0secret" % name.encode())
        found.attach(session)
        return found


@pytest.fixture
def door(bench: Bench010, tmp_path: Path) -> Door:
    with changing_users(tmp_path / "users.json") as users:
        for name in ("ann", "bob"):
            users[name] = User(name, secrets=secrets_of("secret", LEAST_ITERATIONS))
    return Door(bench, tmp_path / "users.json", "PLAIN", "SCRAM-SHA-256", "EXTERNAL")


def code_of(client: Client010) -> int:
    (told,) = client.of(ExecutionException)
    return int(told.error_code)


def test_a_user_gets_in_by_plain_and_is_written_down(door: Door) -> None:
    client = door.opened("ann")
    assert client.of(ConnectionStart)[0].mechanisms == ("PLAIN", "SCRAM-SHA-256")
    assert client.sync()
    assert door.events == [(AuditEvent.LOGIN, "ann")]


def test_a_wrong_password_ends_the_connection_and_is_written_down(door: Door) -> None:
    client = door.client()
    client.open("PLAIN", b"\0ann\0wrong")
    assert client.of(ConnectionClose)[0].reply_code == 320
    assert client.connection.is_over
    assert [event for event, _ in door.events] == [AuditEvent.LOGIN_FAILED]


@pytest.mark.parametrize("password", ["secret", "wrong"])
def test_scram_asks_and_both_sides_prove_themselves(door: Door, password: str) -> None:
    client = door.client()
    scram = ScramClient(["SCRAM-SHA-256"], "ann", password)
    client.write(PROTOCOL_HEADER)
    first = scram.get_client_first().encode()
    client.say(ConnectionStartOk({}, "SCRAM-SHA-256", first, "en_US"), 0)
    door.bench.run()
    scram.set_server_first(client.of(ConnectionSecure)[0].challenge.decode())
    client.say(ConnectionSecureOk(scram.get_client_final().encode()), 0)
    door.bench.run()
    if password == "wrong":
        assert client.of(ConnectionClose)[0].reply_text == "authentication failed"
        return
    scram.set_server_final(client.of(ConnectionSecure)[1].challenge.decode())
    client.say(ConnectionSecureOk(b""), 0)
    client.say(ConnectionTuneOk(200, 65_535, 0), 0)
    client.say(ConnectionOpen(""), 0)
    door.bench.run()
    assert client.connection.is_open
    assert client.connection.login.principal.name == "ann"


def test_a_certificate_gets_its_client_in(door: Door) -> None:
    client = door.client("ann")
    client.open("EXTERNAL")
    client.attach()
    assert client.sync()
    assert client.connection.login.principal.name == "ann"
    stranger = door.client("ann")
    stranger.open("EXTERNAL", b"bob")
    assert stranger.of(ConnectionClose)[0].reply_code == 320


def test_nobody_is_anonymous_where_that_is_not_offered(door: Door) -> None:
    client = door.client()
    client.open()
    assert client.of(ConnectionClose)[0].reply_text == "authentication failed"


def test_a_user_has_so_many_connections(door: Door) -> None:
    door.opened("ann")
    door.opened("ann")
    third = door.client()
    third.open("PLAIN", b"\0ann\0secret")
    assert "2 connections" in third.of(ConnectionClose)[0].reply_text
    assert door.opened("bob").sync()


@pytest.mark.parametrize(
    "command",
    [
        MessageSubscribe("q", "d", 0, 0),
        QueueDeclare("new"),
        QueueDelete("q"),
        QueuePurge("q"),
        ExchangeDeclare("new", "direct"),
    ],
)
def test_what_a_user_may_not_do_ends_the_session_and_is_written_down(
    door: Door, command: object
) -> None:
    client = door.opened("bob")
    client.do(command)
    assert code_of(client) == 403
    assert [event for event, _ in door.events] == [AuditEvent.LOGIN, AuditEvent.PERMISSION_REFUSED]


@pytest.mark.parametrize(
    "command", [QueueQuery("other"), QueueDeclare("other"), QueueDeclare("other", passive=True)]
)
def test_of_a_queue_is_told_nothing_to_whom_nothing_there_is_allowed(
    door: Door, command: object
) -> None:
    door.opened("ann").do(QueueDeclare("other"))
    client = door.opened("bob")
    client.do(command)
    assert code_of(client) == 403
    assert client.of(ExecutionResult) == []


@pytest.mark.parametrize(
    "command",
    [
        QueueDeclare("of-bob", "amq.fanout"),
        QueueDeclare("of-bob", arguments={"alternate_exchange": "amq.fanout"}),
        QueueDeclare("of-bob", arguments={"dead_letter_queue": "other"}),
        ExchangeDeclare("of-bob", "direct", "amq.fanout"),
    ],
)
def test_what_is_rejected_goes_only_where_its_user_may_send(door: Door, command: object) -> None:
    door.opened("ann").do(QueueDeclare("other"))
    client = door.opened("bob")
    client.do(command)
    assert code_of(client) == 403
    door.opened("bob", b"again").do(QueueDeclare("of-bob", arguments={"dead_letter_queue": "q"}))
    assert "of-bob" in door.bench.broker.queues


def test_who_may_not_read_a_queue_does_not_have_it_alone(door: Door) -> None:
    """Else anybody could keep all others from a queue, without a permission."""
    client = door.opened("bob")
    client.do(QueueQuery("q"))
    client.do(QueueDeclare("q"))
    assert client.of(ExecutionResult)[0].value.queue == "q"
    client.do(QueueDeclare("q", exclusive=True))
    assert code_of(client) == 403
    other = door.opened("ann")
    other.subscribe("q")
    other.send("q")
    assert other.bodies == [b"body"]


@pytest.mark.parametrize("command", [QueueDelete("q"), QueuePurge("q")])
def test_permissions_are_asked_before_another_broker_is_asked_to_decide(
    door: Door, command: object
) -> None:
    asked: list[object] = []

    class Elsewhere:
        def delete(self, order: Order, _on_told: OnTold) -> None:
            asked.append(order)

        def purge(self, queue: str, _on_purged: OnPurged) -> None:
            asked.append(queue)

    door.bench.broker.administration.decider = Elsewhere()
    client = door.opened("bob")
    client.do(command)
    assert code_of(client) == 403
    assert asked == []
    door.opened("ann").do(command)
    assert len(asked) == 1


def test_a_user_sends_where_it_may_and_nowhere_else(door: Door) -> None:
    client = door.opened("bob")
    client.send("q")
    assert client.sync()
    client.do(MessageTransfer("amq.fanout", 1, 0), **content("k"))
    assert code_of(client) == 403


def test_a_branch_in_doubt_is_decided_by_who_may_do_what_it_does(door: Door) -> None:
    ann = door.opened("ann")
    ann.do(DtxSelect())
    ann.do(QueueDeclare("hers"))
    ann.do(DtxStart(XID))
    ann.send("hers")
    ann.do(End(XID))
    ann.do(DtxPrepare(XID))
    bob, other = door.opened("bob"), door.opened("ann", b"other")
    expected: list[tuple[Client010, list[DtxXid]]] = [(bob, []), (other, [XID])]
    for each, found in expected:
        each.do(DtxRecover())
        assert [*each.of(ExecutionResult)[-1].value.in_doubt] == found
    bob.do(DtxRollback(XID))
    assert code_of(bob) == 404  # as of a branch that is not there
    assert door.events[-1] == (AuditEvent.PERMISSION_REFUSED, "bob")
