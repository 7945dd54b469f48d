"""Who gets in, over TLS and by each SASL mechanism that real clients know; and who does not."""

from __future__ import annotations

import json
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from proton import ConnectionException, Message, Terminus
from proton.reactor import ReceiverOption
from proton.utils import BlockingConnection, ConnectionClosed, LinkDetached, SendException

from broker_shim.security.passwords import secrets_of
from broker_shim.security.rules.users import User
from broker_shim.security.users_file import changing_users
from tests.support.amqp.certificates import Authority, Pair
from tests.support.stores.services import short_folder
from tests.support.system.client_programs import Program, build
from tests.support.system.clients import TIMEOUT_S, connected, take
from tests.support.system.processes import BrokerProcess, StartBroker

pytestmark = [pytest.mark.system, pytest.mark.slow]

PASSWORD = "a password, = long"
PERMISSIONS = """
[security]
failed_login_delay_s = 0.1
permissions = [
    {who = ["role:shop"], address = "orders.#", allow = ["read", "write", "create"]},
    {who = ["bob"], address = "orders.#", allow = ["read"]},
    {who = ["*"], address = "open.#", allow = ["read", "write", "create"]},
    {who = ["*"], address = "temporary", allow = ["create", "read"]},
]
"""


class Setup(NamedTuple):
    """A broker with TLS, users and client certificates; files of what its clients need."""

    broker: BrokerProcess
    folder: Path
    authority: Authority
    server: Pair
    client: Pair
    audit: Path

    def audited(self, event: str) -> list[dict[str, Any]]:
        """What the audit file tells of such events so far."""
        lines = [json.loads(line) for line in self.audit.read_text().splitlines()]
        return [line for line in lines if line["event"] == event]

    def security(self, client: str, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
        """What a client program is told, so that it gets in as ann."""
        is_java = client == "jms"
        found: dict[str, Any] = {
            "ca": self.folder / "trust.p12" if is_java else self.authority.pair.certificate,
            "mechanism": mechanism,
        }
        if mechanism == "EXTERNAL":
            key_store = self.folder / "client.p12"
            return found | {
                "certificate": key_store if is_java else self.client.certificate,
                "key": self.client.key,
            }
        return found | {"user": "ann", "password": password}


def add_user(file: Path, name: str, *roles: str, password: str = PASSWORD) -> None:
    with changing_users(file) as users:
        users[name] = User(name, frozenset(roles), secrets_of(password, 4096))


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setup]:
    folder = tmp_path_factory.mktemp("security")
    authority = Authority(folder)
    server, client = authority.issue_server(), authority.issue("client", "/O=shop/CN=ann")
    add_user(folder / "users.json", "ann", "shop")
    add_user(folder / "users.json", "bob")
    audit = folder / "audit.log"
    (folder / "sparkstore.toml").write_text(PERMISSIONS)
    broker = BrokerProcess(
        *("--memory", "--listen", "127.0.0.1:0", "--config", f"{folder}/sparkstore.toml"),
        *("--tls-cert", str(server.certificate), "--tls-key", str(server.key)),
        *("--tls-client-ca", str(authority.pair.certificate)),
        *("--users", f"{folder}/users.json", "--audit-file", str(audit)),
        *("--mechanisms", "EXTERNAL,SCRAM-SHA-512,SCRAM-SHA-256,PLAIN,ANONYMOUS"),
    )
    yield Setup(broker, folder, authority, server, client, audit)
    assert broker.terminate() == 0
    assert "Traceback" not in broker.log


@pytest.fixture(scope="module")
def key_stores(setup: Setup) -> None:
    """What Java reads instead of PEM."""
    subprocess.run(
        [
            *("keytool", "-importcert", "-noprompt", "-alias", "authority"),
            *("-file", setup.authority.pair.certificate, "-storetype", "PKCS12"),
            *("-keystore", setup.folder / "trust.p12", "-storepass", "changeit"),
        ],
        check=True,
        capture_output=True,
    )
    setup.authority._openssl(
        *("pkcs12", "-export", "-in", setup.client.certificate, "-inkey", setup.client.key),
        *("-out", setup.folder / "client.p12", "-passout", "pass:changeit"),
    )


@pytest.fixture(scope="module")
def programs(setup: Setup) -> Iterator[Callable[[str], Program]]:
    """A program for each client, not connected; started when it is first asked for."""
    running: dict[str, Program] = {}

    def get(name: str) -> Program:
        if name not in running:
            build(name)
            running[name] = Program(name)
        return running[name]

    yield get
    for program in running.values():
        program.end()


MESSAGE = {"body": {"value": ["string", "hello"]}}
KNOWN = [
    *(("proton", each) for each in ("PLAIN", "EXTERNAL", "ANONYMOUS")),
    *(("rhea", each) for each in ("PLAIN", "EXTERNAL", "ANONYMOUS")),
    *(("go-amqp", each) for each in ("PLAIN", "EXTERNAL", "ANONYMOUS")),
    *(("jms", each) for each in ("PLAIN", "EXTERNAL", "ANONYMOUS")),
    *(("jms", each) for each in ("SCRAM-SHA-256", "SCRAM-SHA-512")),
]


@pytest.mark.parametrize(("client", "mechanism"), KNOWN)
def test_a_client_gets_in_over_tls(
    setup: Setup,
    programs: Callable[[str], Program],
    request: pytest.FixtureRequest,
    client: str,
    mechanism: str,
) -> None:
    program = programs(client)
    if client == "jms":
        request.getfixturevalue("key_stores")
    told = setup.security(client, mechanism)
    if mechanism == "ANONYMOUS":
        del told["user"], told["password"]
    program.connect(setup.broker, **told)
    queue = f"open.{client}.{mechanism}"
    assert program.send(queue, MESSAGE) == ["accepted"]
    assert len(program.take(queue)) == 1
    program.disconnect()
    login = setup.audited("login")[-1]
    user = "anonymous" if mechanism == "ANONYMOUS" else "ann"
    said = None if (client, mechanism) == ("rhea", "ANONYMOUS") else mechanism  # it says no SASL
    assert (login["user"], login.get("mechanism")) == (user, said)
    assert login["tls"] in {"TLSv1.2", "TLSv1.3"}


@pytest.mark.parametrize(
    ("client", "mechanism"),
    [(client, mechanism) for client, mechanism in KNOWN if mechanism[0] in "PS"],
)
def test_a_wrong_password_does_not(
    setup: Setup,
    programs: Callable[[str], Program],
    request: pytest.FixtureRequest,
    client: str,
    mechanism: str,
) -> None:
    program = programs(client)
    if client == "jms":
        request.getfixturevalue("key_stores")
    failed = len(setup.audited("login-failed"))
    with pytest.raises(AssertionError, match="could not connect"):
        program.connect(setup.broker, **setup.security(client, mechanism, "wrong"))
    program.disconnect()
    told = setup.audited("login-failed")[failed:]
    assert {line["mechanism"] for line in told} == {mechanism}
    assert "ann" in told[0]["reason"]
    assert "wrong" not in setup.audit.read_text()


def test_a_rust_client_gets_in_by_its_password_alone(
    start_broker: StartBroker, programs: Callable[[str], Program], tmp_path: Path
) -> None:
    """It is built without TLS, so on loopback."""
    add_user(tmp_path / "users.json", "ann")
    told = ("--users", f"{tmp_path}/users.json", "--audit-file", f"{tmp_path}/audit.log")
    broker, program = start_broker("--memory", *told), programs("fe2o3-amqp")
    mechanisms = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    for mechanism in mechanisms:
        ann = {"mechanism": mechanism, "user": "ann"}
        program.connect(broker, **ann, password=PASSWORD)
        assert program.send("q", MESSAGE) == ["accepted"]
        assert len(program.take("q")) == 1
        program.disconnect()
        with pytest.raises(AssertionError, match="could not connect"):
            program.connect(broker, **ann, password="wrong")
    lines = [json.loads(line) for line in (tmp_path / "audit.log").read_text().splitlines()]
    for event in ("login", "login-failed"):
        assert [line["mechanism"] for line in lines if line["event"] == event] == [*mechanisms]


# --------------------------------------------------------------------- certificates, by raw bytes


def tls(setup: Setup, pair: Pair | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=setup.authority.pair.certificate)
    if pair is not None:
        context.load_cert_chain(*pair)
    return context


def dial(setup: Setup, context: ssl.SSLContext) -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", setup.broker.port), timeout=TIMEOUT_S)
    return context.wrap_socket(plain, server_hostname="localhost")


def read_all(peer: socket.socket) -> bytes:
    said = b""
    try:
        while piece := peer.recv(4096):
            said += piece
    except (ssl.SSLError, ConnectionError):
        pass
    return said


SASL = b"AMQP\x03\x01\x00\x00"
AMQP = b"AMQP\x00\x01\x00\x00"


def test_a_client_is_offered_external_only_with_a_certificate(setup: Setup) -> None:
    for pair, has_external in ((None, False), (setup.client, True)):
        with dial(setup, tls(setup, pair)) as peer:
            peer.sendall(SASL)
            said = b""
            while b"ANONYMOUS" not in said:
                said += peer.recv(4096)
            assert (b"EXTERNAL" in said) == has_external


def test_a_certificate_that_nobody_vouches_for_is_refused_by_the_handshake(
    setup: Setup, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "stranger").issue("ann", "/CN=ann")
    with dial(setup, tls(setup, stranger)) as peer:  # TLS 1.3: the client hears of it when it reads
        assert read_all(peer) == b""
    while not any(line["mechanism"] == "TLS" for line in setup.audited("login-failed")):
        time.sleep(0.01)


def test_who_does_not_speak_tls_is_hung_up_on(setup: Setup) -> None:
    with socket.create_connection(("127.0.0.1", setup.broker.port), timeout=TIMEOUT_S) as peer:
        peer.sendall(SASL)
        assert SASL not in read_all(peer)


# ------------------------------------------------------------------------------------ permissions


@pytest.fixture
def plain_broker(start_broker: StartBroker, tmp_path: Path) -> BrokerProcess:
    """On loopback without TLS; ann, bob and anonymous clients, with permissions."""
    add_user(tmp_path / "users.json", "ann", "shop")
    add_user(tmp_path / "users.json", "bob")
    (tmp_path / "sparkstore.toml").write_text(PERMISSIONS)
    return start_broker(
        *("--memory", "--config", f"{tmp_path}/sparkstore.toml"),
        *("--users", f"{tmp_path}/users.json", "--mechanisms", "PLAIN,ANONYMOUS"),
        *("--queue", "orders.eu", "--queue", "bills", "--queue", "open.relay"),
    )


def as_user(name: str) -> dict[str, Any]:
    return {"user": name, "password": PASSWORD, "allowed_mechs": "PLAIN"}


def test_a_user_does_what_permissions_allow_and_nothing_else(plain_broker: BrokerProcess) -> None:
    url = plain_broker.url
    with connected(url, **as_user("ann")) as ann, connected(url, **as_user("bob")) as bob:
        ann.create_sender("orders.new").send(Message(id=1))
        refused: list[Callable[[], object]] = [
            lambda: bob.create_sender("orders.eu"),
            lambda: bob.create_receiver("orders.made.up"),
            lambda: bob.create_receiver("bills"),
            lambda: ann.create_sender("bills"),
            lambda: ann.create_receiver("amq.topic/orders"),
        ]
        for attempt in refused:
            with pytest.raises(LinkDetached, match="amqp:unauthorized-access"):
                attempt()
        receiver = bob.create_receiver("orders.new")
        assert receiver.receive(TIMEOUT_S).id == 1
        receiver.accept()
    with connected(url) as anybody:
        anybody.create_sender("open.new").send(Message(id=2))
        with pytest.raises(LinkDetached, match="amqp:unauthorized-access"):
            anybody.create_receiver("orders.eu")
    assert [m.id for m in take(url, "open.new", 1)] == [2]


def test_a_relay_looks_at_each_message(plain_broker: BrokerProcess) -> None:
    with connected(plain_broker.url) as anybody:
        relay = anybody.create_sender(None)
        for address, outcome in (("open.relay", "ACCEPTED"), ("orders.eu", "REJECTED")):
            delivery = relay.link.send(Message(address=address))
            anybody.wait(lambda delivery=delivery: delivery.settled, timeout=TIMEOUT_S)
            assert delivery.remote_state.name == outcome
        assert delivery.remote.condition.name == "amqp:unauthorized-access"
    assert len(take(plain_broker.url, "open.relay", 1)) == 1
    lines = [line for line in plain_broker.log.splitlines() if "permission-refused" in line]
    assert len(lines) == 1
    with connected(plain_broker.url, **as_user("ann")) as ann:
        ann.create_sender("orders.eu").send(Message(id=3))
        assert ann.create_receiver("orders.eu").receive(TIMEOUT_S).id == 3  # nothing before it


class Durable(ReceiverOption):
    """A durable subscription, as Qpid JMS asks for one."""

    def apply(self, receiver: Any) -> None:
        receiver.source.durability = Terminus.DELIVERIES
        receiver.source.expiry_policy = Terminus.EXPIRE_NEVER


def subscribed(connection: BlockingConnection, address: str) -> Any:
    return connection.create_receiver(address, credit=1, name="news", options=Durable())


def test_links_and_subscriptions_are_a_users_own(start_broker: StartBroker, tmp_path: Path) -> None:
    """Another user with the same container and link name neither takes over nor ends them."""
    for name in ("ann", "bob"):
        add_user(tmp_path / "users.json", name)
    (tmp_path / "sparkstore.toml").write_text(
        """
        [security]
        permissions = [
            {who = ["ann"], address = "news.#", allow = ["read", "write", "create"]},
            {who = ["bob"], address = "news.#", allow = ["read"]},
            {who = ["bob"], address = "other", allow = ["read", "create"]},
        ]
        """
    )
    broker = start_broker(
        *(str(tmp_path / "root"), "--config", f"{tmp_path}/sparkstore.toml"),
        *("--users", f"{tmp_path}/users.json", "--multicast", "news.#", "--multicast", "other"),
    )
    same: dict[str, Any] = {"container_id": "same"}
    with connected(broker.url, **as_user("ann"), **same) as ann:
        receiver = subscribed(ann, "news.eu")
        with connected(broker.url, **as_user("bob"), **same) as bob:
            with pytest.raises(LinkDetached, match="amqp:unauthorized-access"):
                subscribed(bob, "news.eu")  # durable: it would create something
            subscribed(bob, "other").close()
            for queue in ("news.eu::subscription.ann/same.news", "news.eu::subscription.x"):
                with pytest.raises(LinkDetached, match="amqp:unauthorized-access"):
                    bob.create_receiver(queue)
        ann.create_sender("news.eu").send(Message(id=1, durable=True))
        assert receiver.receive(TIMEOUT_S).id == 1
        receiver.accept()


# ---------------------------------------------------------------------------------- at run time


def test_a_changed_users_file_counts_at_the_next_login(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    file = tmp_path / "users.json"
    add_user(file, "ann")
    broker = start_broker("--memory", "--users", str(file))
    with connected(broker.url, **as_user("ann")):
        add_user(file, "ann", password="another")
        with pytest.raises(ConnectionException), connected(broker.url, **as_user("ann")):
            pass
    with connected(broker.url, user="ann", password="another", allowed_mechs="PLAIN"):
        pass


def test_sighup_ends_the_connections_of_deleted_users(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    file = tmp_path / "users.json"
    add_user(file, "ann")
    add_user(file, "bob")
    broker = start_broker("--memory", "--users", str(file))
    with connected(broker.url, **as_user("bob")) as bob:
        ann = BlockingConnection(broker.url, timeout=TIMEOUT_S, **as_user("ann"))
        with changing_users(file) as users:
            del users["ann"]
        broker.signal(signal.SIGHUP)
        with pytest.raises(ConnectionClosed, match="amqp:unauthorized-access"):
            ann.wait(lambda: False, timeout=TIMEOUT_S)
        bob.create_sender("still.there").send(Message())


def test_sighup_takes_a_renewed_certificate_and_who_is_connected_stays(setup: Setup) -> None:
    with dial(setup, tls(setup)) as old:
        renewed = setup.authority.issue("renewed", "/CN=renewed", names="DNS:localhost")
        for new, current in zip(renewed, setup.server, strict=True):
            new.replace(current)
        setup.broker.signal(signal.SIGHUP)
        name = ""
        while name != "renewed":
            with dial(setup, tls(setup)) as peer:
                subject = peer.getpeercert() or {}
                name = dict(pair for rdn in subject["subject"] for pair in rdn)["commonName"]
        old.sendall(SASL)
        assert SASL in old.recv(4096)


def test_what_would_be_open_to_all_is_refused_in_one_line(start_broker: StartBroker) -> None:
    with pytest.raises(AssertionError, match="--insecure") as refused:
        start_broker("--memory", "--listen", "0.0.0.0:0")
    assert len(str(refused.value).strip().splitlines()) == 2  # ours, and the one line


def test_insecure_beyond_loopback_is_served_and_said_loudly(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    add_user(tmp_path / "users.json", "ann")
    broker = BrokerProcess(
        *("--memory", "--listen", "0.0.0.0:0", "--insecure", "--users", f"{tmp_path}/users.json")
    )
    try:
        with connected(f"amqp://127.0.0.1:{broker.port}", **as_user("ann")):
            pass
        with pytest.raises(ConnectionException), connected(f"amqp://127.0.0.1:{broker.port}"):
            pass
    finally:
        broker.terminate()
    assert "INSECURE" in broker.log


def test_at_a_member_nobody_sends_as_somebody_else(tmp_path: Path) -> None:
    """Members serve clients by the same rules; they are at the member's door."""
    for name in ("ann", "bob"):
        add_user(tmp_path / "users.json", name)
    told = ("--users", f"{tmp_path}/users.json", "--audit-file", f"{tmp_path}/audit.log")
    with short_folder() as folder:
        listen = "--listen=127.0.0.1:0"
        service = BrokerProcess(str(tmp_path / "root"), f"--store-socket={folder}/s", listen)
        member = BrokerProcess(f"--store=unix:{folder}/s", "--member=second", listen, *told)
        with connected(member.url, **as_user("bob")) as bob:
            sender = bob.create_sender("orders")
            sender.send(Message(id=1, user_id=b"bob"))
            with pytest.raises(SendException):
                sender.send(Message(id=2, user_id=b"ann"))
            sender.send(Message(id=3))
        with connected(member.url, **as_user("ann")) as ann:
            receiver = ann.create_receiver("orders", credit=2)
            came = [receiver.receive(TIMEOUT_S) for _ in range(2)]
        assert [(each.id, each.user_id) for each in came] == [(1, b"bob"), (3, b"")]
        assert member.terminate() == 0
        assert service.terminate() == 0
    lines = [json.loads(line) for line in (tmp_path / "audit.log").read_text().splitlines()]
    (refused,) = [each for each in lines if each["event"] == "permission-refused"]
    assert (refused["user"], refused["user_id"]) == ("bob", "ann")
