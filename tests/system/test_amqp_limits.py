"""How many may connect, and how long a failed login waits: of a real broker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from proton import Message
from proton.utils import BlockingConnection

from broker_shim.amqp_1_0.composites import Close, Open, SaslInit, SaslOutcome
from broker_shim.protocol_1_0.codec.frames import (
    AMQP_HEADER,
    SASL_FRAME,
    SASL_HEADER,
    encoded_frame,
)
from broker_shim.security.passwords import secrets_of
from broker_shim.security.rules.users import User
from broker_shim.security.users_file import changing_users
from tests.support.readiness import is_ready
from tests.support.roots.logs import until
from tests.support.system.processes import BrokerProcess
from tests.support.system.raw_peer import RawPeer, condition

pytestmark = [pytest.mark.system, pytest.mark.slow]

DELAY_S = 2.5
"""More than a peer is given to hang up by itself, once it was told that it is over."""
SETTINGS = f"""
[broker]
max_connections = 4
max_connections_per_user = 2
max_half_open = 3
handshake_timeout_s = 5.0
[security]
failed_login_delay_s = {DELAY_S}
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    (tmp_path / "sparkstore.toml").write_text(SETTINGS)
    with changing_users(tmp_path / "users.json") as users:
        for name in ("ann", "bob"):
            users[name] = User(name, secrets=secrets_of("secret", 4096))
    started = BrokerProcess(
        *("--memory", "--listen", "127.0.0.1:0", "--config", f"{tmp_path}/sparkstore.toml"),
        *("--users", f"{tmp_path}/users.json", "--metrics-file", f"{tmp_path}/metrics.prom"),
    )
    yield started
    if started.is_running:
        assert started.terminate() == 0
    assert "Traceback" not in started.log


def logging_in(broker: BrokerProcess, name: str, password: str = "secret") -> RawPeer:
    """A peer that has said its password and heard nothing yet."""
    peer = RawPeer(broker)
    init = SaslInit("PLAIN", f"\0{name}\0{password}".encode())
    peer.write(SASL_HEADER.encoded() + encoded_frame(init, kind=SASL_FRAME))
    return peer


def outcome(peer: RawPeer) -> int:
    """What became of the login."""
    assert peer.header() == SASL_HEADER
    return peer.until(SaslOutcome).code


def logged_in(broker: BrokerProcess, name: str) -> RawPeer:
    """A peer whose open was said."""
    peer = logging_in(broker, name)
    assert outcome(peer) == 0
    peer.write(AMQP_HEADER.encoded() + encoded_frame(Open(f"{name}'s")))
    assert peer.header() == AMQP_HEADER
    peer.until(Open)
    return peer


def is_served(broker: BrokerProcess, name: str) -> bool:
    """True if a user gets in and stays; it leaves again."""
    with logged_in(broker, name) as peer:
        peer.say(Close())
        ended: Close = peer.until(Close)
        return ended.error is None


def test_a_failed_login_waits_and_a_right_one_does_not(broker: BrokerProcess) -> None:
    began_s = time.monotonic()
    with logging_in(broker, "ann", "wrong") as peer:
        assert is_served(broker, "ann")
        assert not is_ready(peer.socket, 0), "the wrong one is answered later"
        assert outcome(peer) == 1
        assert peer.is_hung_up_on()
    assert time.monotonic() - began_s >= DELAY_S * 0.9


def test_half_open_connections_have_a_limit_of_their_own_and_keep_nobody_out(
    broker: BrokerProcess,
) -> None:
    with logged_in(broker, "ann") as before:
        silent = [RawPeer(broker) for _ in range(3)]
        assert is_served(broker, "bob")
        assert silent[0].is_hung_up_on()
        before.begun()
        for peer in silent:
            peer.socket.close()


def served_at_last(broker: BrokerProcess, name: str) -> None:
    """Return when a user gets in: the broker has to hear of it that others left."""
    until_s = time.monotonic() + 20
    while True:
        try:
            assert is_served(broker, name)
        except (AssertionError, OSError):
            assert time.monotonic() < until_s
            time.sleep(0.01)
        else:
            return


def test_who_failed_to_log_in_and_hung_up_still_counts(broker: BrokerProcess) -> None:
    began_s = time.monotonic()
    for _ in range(3):
        logging_in(broker, "ann", "wrong").socket.close()
    until(lambda: broker.log.count("login-failed") == 3)  # before that they would give way
    served_at_last(broker, "ann")
    assert time.monotonic() - began_s >= DELAY_S * 0.9


def test_a_user_has_so_many_connections_and_no_more(broker: BrokerProcess, tmp_path: Path) -> None:
    with logged_in(broker, "ann") as first, logged_in(broker, "ann"):
        with logging_in(broker, "ann") as third:
            assert outcome(third) == 0
            third.write(AMQP_HEADER.encoded() + encoded_frame(Open("third")))
            third.header()
            assert condition(third.until(Close)) == "amqp:resource-limit-exceeded"
            assert third.is_hung_up_on()
        assert is_served(broker, "bob")
        first.say(Close())
        first.until(Close)
        assert is_served(broker, "ann")
    assert broker.terminate() == 0
    counted = dict(
        line.split()
        for line in (tmp_path / "metrics.prom").read_text().splitlines()
        if line[0] != "#"
    )
    assert counted["sparkstore_broker_logins_total"] == "5.0"
    assert counted["sparkstore_broker_refused_connections_total"] == "1.0"
    refused = [line for line in broker.log.splitlines() if "connection-refused" in line]
    assert len(refused) == 1
    assert '"user": "ann"' in refused[0]


def test_connections_in_all_have_a_limit(broker: BrokerProcess) -> None:
    """Four, half-open ones among them; these give way, and those that opened do not."""
    opened = [logged_in(broker, name) for name in ("ann", "ann", "bob")]
    silent = RawPeer(broker)
    opened.append(logged_in(broker, "bob"))
    assert silent.is_hung_up_on()
    with RawPeer(broker) as one_too_many:
        assert one_too_many.is_hung_up_on()
    for peer in (*opened, silent):
        peer.socket.close()


def test_a_queue_that_an_attach_made_goes_when_it_is_unused(tmp_path: Path) -> None:
    (tmp_path / "sparkstore.toml").write_text("[broker]\nunused_queue_s = 0.2\n")
    words = ("--listen", "127.0.0.1:0", "--config", f"{tmp_path}/sparkstore.toml")
    broker = BrokerProcess(str(tmp_path / "root"), *words, "--queue", "named")
    connection = BlockingConnection(broker.url, timeout=20)
    for name in ("named", "q"):
        connection.create_receiver(name).close()
    until(lambda: "queue 'q' is deleted: it was made on demand" in broker.log)
    connection.create_sender("q").send(Message("x", durable=True))  # it is made anew
    assert connection.create_receiver("named").link.remote_source.address == "named"
    assert connection.create_receiver("q").receive(timeout=20).body == "x"
    connection.close()
    assert broker.terminate() == 0
    assert "queue 'named' is deleted" not in broker.log
