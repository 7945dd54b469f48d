"""What does not fit at the port of a standby is refused on both sides, and the primary goes on."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from broker_shim.security.tls import TlsFiles, server_context
from sparkstore.errors import StoreError
from sparkstore.shipping.frames import POSITION, PROTOCOL, PairFrame, StandbyHello, as_json
from sparkstore.shipping.peer import Peer
from sparkstore.standby.stand_by import PeerAddress, StandBy
from sparkstore.tables.schema import SCHEMA_VERSION
from tests.support.amqp.certificates import Authority
from tests.support.roots.logs import TIMEOUT_S, until, write
from tests.support.roots.pairs import PAIR, TOKEN, on_a_thread, port_of, serving, standing_by

pytestmark = pytest.mark.slow

OTHERS = "another token of the pair"


@contextmanager
def running(where: Path, address: PeerAddress) -> Iterator[StandBy]:
    """A standby on a thread, which may end by an error."""
    standby = StandBy(where, PAIR, address)
    ended: list[str] = []

    def run() -> None:
        try:
            standby.run()
        except StoreError as reason:
            ended.append(str(reason))
            standby._trouble = str(reason)

    with on_a_thread(standby, run):
        yield standby


@pytest.mark.parametrize(
    ("port_tls", "standby_tls", "token", "standby_says", "primary_says"),
    [
        pytest.param("own", "own", OTHERS, "the token is wrong", "the token is wrong", id="token"),
        pytest.param("own", "other", TOKEN, "CERTIFICATE_VERIFY_FAILED", "no standby at",
                     id="authority"),
        pytest.param("name", "own", TOKEN, "IP address mismatch", "no standby at", id="name"),
        pytest.param("own", None, TOKEN, "127.0.0.1:", "WRONG_VERSION_NUMBER",
                     id="plain to TLS"),
        pytest.param(None, "own", TOKEN, "no primary at", "speaks TLS", id="TLS to plain"),
    ],
)  # fmt: skip
def test_a_standby_whose_tls_or_token_does_not_fit_is_refused_on_both_sides(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    port_tls: str | None,
    standby_tls: str | None,
    token: str,
    standby_says: str,
    primary_says: str,
) -> None:
    own, other = (Authority(tmp_path / name) for name in ("own", "other"))
    names = {"own": "IP:127.0.0.1", "name": "IP:10.0.0.9"}
    files = {name: own.issue(name, "/CN=host", names=san) for name, san in names.items()}
    trusts = {"own": own.pair.certificate, "other": other.pair.certificate}
    server = server_context(TlsFiles(*files[port_tls])) if port_tls else None
    client = ssl.create_default_context(cafile=str(trusts[standby_tls])) if standby_tls else None
    with serving(tmp_path / "a", tls=server) as (log, port):
        address = PeerAddress("127.0.0.1", port_of(port), token, client)
        with running(tmp_path / "b", address) as standby:
            until(lambda: standby_says in standby.trouble)
            until(lambda: primary_says in caplog.text)
            write(log, 1, 3)
            assert not standby.is_live
        if port_tls != "name":
            good = ssl.create_default_context(cafile=str(trusts["own"])) if server else None
            with running(tmp_path / "b", PeerAddress(*address[:2], TOKEN, good)) as standby:
                until(lambda: standby.is_live)
                write(log, 4, 5)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda peer: peer.send(PairFrame.ACK, POSITION.pack(1 << 40)), "records that never were"),
        (lambda peer: peer.send(PairFrame.ACK, b"short"), "answered by ACK"),
        (lambda peer: peer.send(PairFrame.ANSWER, POSITION.pack(0)), "answered by ANSWER"),
        (lambda peer: peer._connection.sendall(b"\xff\xff\xff\xff\x0b"), "frame of kind"),
        (lambda peer: peer._connection.sendall(b"GET / HTTP/1.1\r\n\r\n"), "frame of kind"),
        (lambda peer: peer._connection.sendall(b"\x01"), "frame of kind"),
    ],
    ids=["ahead", "short", "kind", "endless", "text", "half a frame"],
)
def test_a_standby_that_answers_what_it_was_not_asked_is_let_go_and_comes_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, spoil: Callable[[Peer], None], reason: str
) -> None:
    with (
        serving(tmp_path / "a") as (log, port),
        standing_by(tmp_path / "b", port_of(port)) as standby,
    ):
        until(lambda: standby.is_live)
        write(log, 1, 3)
        follower = standby._follower
        assert follower is not None
        spoil(follower._peer)
        until(lambda: reason in caplog.text)
        write(log, 4, 6)
        until(lambda: standby.is_live)
        write(log, 7, 9)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"protocol": PROTOCOL + 1}, "another version"),
        ({"protocol": PROTOCOL - 1}, "another version"),
        ({"schema_version": SCHEMA_VERSION + 1}, "install the same sparkstore on both"),
        ({"schema_version": SCHEMA_VERSION - 1}, "install the same sparkstore on both"),
        ({"a_field": "of a version to come"}, "no standby's greeting"),
    ],
)
def test_a_standby_of_another_version_is_told_to_install_the_same_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, change: dict[str, object], reason: str
) -> None:
    hello = StandbyHello(PROTOCOL, SCHEMA_VERSION, TOKEN, "d" * 32)._asdict()
    with serving(tmp_path / "a") as (log, port):
        peer = Peer(socket.create_connection(("127.0.0.1", port_of(port))), "it", TIMEOUT_S)
        peer.send(PairFrame.HELLO, as_json(hello | change))
        with pytest.raises(StoreError, match=reason):
            peer.receive(lambda _kind: 1 << 20)
        peer.close()
        until(lambda: reason in caplog.text)
        write(log, 1, 3)


WELCOME = {
    "root_id": "a" * 32, "generation": 1, "superseded": [], "witness": "", "must_copy": True,
    "has_log_end": False,
}  # fmt: skip


def call(name: str, call: str = "upload", size: int = 0) -> tuple[PairFrame, bytes]:
    """A call of a copy."""
    return PairFrame.CALL, as_json({"call": call, "name": name, "size": size})


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([(PairFrame.WELCOME, as_json(WELCOME | {"more": 1}))], "install the same on both"),
        ([(PairFrame.WELCOME, b"{}")], "install the same on both"),
        ([(PairFrame.WELCOME, b"no JSON")], "no JSON"),
        ([(PairFrame.REFUSED, b"[]")], "does not say why"),
        ([(PairFrame.LIVE, b"{}")], "install the same on both"),
        ([call("journal/../../x")], "no file of a table"),
        ([call("/etc/passwd", "read")], "no file of a table"),
        ([call("journal/a", "chmod")], "which no copy needs"),
        ([call("journal/a", size=1), (PairFrame.PIECE, b"two")], "longer than it said"),
        ([(PairFrame.CALL, b"[]")], "a call that is none"),
        ([(PairFrame.ROWS, b"xxxxrows")], "the primary sent no "),
    ],
)
def test_a_standby_hangs_up_on_a_primary_that_sends_what_is_none(
    tmp_path: Path, frames: list[tuple[PairFrame, bytes]], reason: str
) -> None:
    if frames[0][0] in {PairFrame.CALL, PairFrame.ROWS}:
        frames = [(PairFrame.WELCOME, as_json(WELCOME)), *frames]
    with socket.create_server(("127.0.0.1", 0)) as listening:
        answers: list[str] = []

        def play() -> None:
            peer = Peer(listening.accept()[0], "the standby", TIMEOUT_S)
            peer.receive(lambda _kind: 1 << 20)
            for frame in frames:
                peer.send(*frame)
            with suppress(StoreError):
                while True:
                    peer.receive(lambda _kind: 1 << 20)
            answers.append("hung up")
            peer.close()

        playing = threading.Thread(target=play)
        playing.start()
        address = PeerAddress("127.0.0.1", listening.getsockname()[1], TOKEN)
        with running(tmp_path / "b", address) as standby:
            until(lambda: reason in standby.trouble)
            playing.join(TIMEOUT_S)
    assert answers == ["hung up"]
    assert not (tmp_path / "b" / "root.json").exists()
