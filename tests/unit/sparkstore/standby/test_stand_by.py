"""A standby has what its primary confirms, whatever it had before, and is refused in one line."""

from __future__ import annotations

import socket
import ssl
import threading
from dataclasses import replace
from logging import WARNING
from pathlib import Path

import pytest

from broker_shim.security.tls import TlsFiles, server_context
from sparkstore.cli.command_line import main
from sparkstore.errors import InvalidRequest
from sparkstore.exit_codes import ExitCode
from sparkstore.log.wal_format import encode_group, seed
from sparkstore.recovery.recovery import journal_tail
from sparkstore.shipping.frames import (
    MOST_HELLO_BYTES,
    POSITION,
    PROTOCOL,
    PairFrame,
    StandbyHello,
    as_json,
)
from sparkstore.shipping.peer import Peer
from sparkstore.standby.port import GREETING_S
from sparkstore.standby.stand_by import PeerAddress, StandBy, finish
from sparkstore.tables.delta_files import newest_version
from sparkstore.tables.fencing import STANDBY, change_identity
from sparkstore.tables.lease import jobs_lease
from sparkstore.tables.root import open_root
from sparkstore.tables.schema import SCHEMA_VERSION
from tests.support.amqp.certificates import Authority
from tests.support.roots.logs import (
    TIMEOUT_S,
    append,
    error_of,
    facts_in,
    flush,
    image_of,
    opened,
    until,
    write,
)
from tests.support.roots.pairs import (
    PAIR,
    TOKEN,
    port_of,
    refusal_of,
    serving,
    standing_by,
)

pytestmark = pytest.mark.slow


def test_a_new_standby_gets_a_copy_and_then_each_group(tmp_path: Path) -> None:
    with serving(tmp_path / "a") as (log, port):
        write(log, 1, 50, size=200)
        with standing_by(tmp_path / "b", port_of(port)) as standby:
            until(lambda: standby.is_live)
            write(log, 51, 100)
            assert standby.position == log.synced_position
    assert open_root(tmp_path / "b").identity.role == STANDBY
    finish(tmp_path / "b")
    with opened(tmp_path / "b"):
        assert facts_in(tmp_path / "b") == [*range(1, 101)]


def test_what_was_confirmed_last_is_in_the_log_of_a_standby_that_was_killed(
    tmp_path: Path,
) -> None:
    by_hand = replace(PAIR, commit_interval_ms=3_600_000)
    with serving(tmp_path / "a") as (log, port):
        with standing_by(tmp_path / "b", port_of(port), by_hand) as standby:
            until(lambda: standby.is_live)
            write(log, 1, 30)
            image = tmp_path / "image"
            image_of(
                tmp_path / "b", image
            )  # as a power cut leaves it: nothing is in its tables yet
        assert journal_tail(open_root(image)).last_position < 30
    finish(image)
    with opened(image):
        assert facts_in(image) == [*range(1, 31)]


def test_a_person_promotes_a_standby_that_was_stopped_and_it_has_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    by_hand = replace(PAIR, commit_interval_ms=3_600_000)
    image = tmp_path / "image"
    with (
        serving(tmp_path / "a") as (log, port),
        standing_by(tmp_path / "b", port_of(port), by_hand) as standby,
    ):
        until(lambda: standby.is_live)
        write(log, 1, 30)
        image_of(tmp_path / "b", image)
        assert main(["promote", str(tmp_path / "b")]) == ExitCode.TRY_LATER
    assert "is in use by another process" in capsys.readouterr().err
    assert main(["promote", str(image)]) == 0
    with opened(image):
        assert facts_in(image) == [*range(1, 31)]


def test_a_standby_that_was_away_gets_the_journal_s_records(tmp_path: Path) -> None:
    with serving(tmp_path / "a") as (log, port):
        with standing_by(tmp_path / "b", port_of(port)) as standby:
            until(lambda: standby.is_live)
            write(log, 1, 10)
        write(log, 11, 300, size=1_000)
        root_id = open_root(tmp_path / "b").identity.root_id
        with standing_by(tmp_path / "b", port_of(port)) as standby:
            until(lambda: standby.is_live)
            write(log, 301, 310)
        assert open_root(tmp_path / "b").identity.root_id == root_id
        assert not [*(tmp_path / "b").glob("set-aside/*-root")]
    finish(tmp_path / "b")
    with opened(tmp_path / "b"):
        assert facts_in(tmp_path / "b") == [*range(1, 311)]


def test_what_a_standby_missed_comes_in_few_parts_however_many_commits_it_was(
    tmp_path: Path,
) -> None:
    with serving(tmp_path / "a") as (log, port):
        with standing_by(tmp_path / "b", port_of(port)) as standby:
            until(lambda: standby.is_live)
        before = newest_version(open_root(tmp_path / "b").journal)
        for number in range(1, 21):
            write(log, number, number)
            flush(log)
        with standing_by(tmp_path / "b", port_of(port)) as standby:
            until(lambda: standby.is_live)
            assert newest_version(open_root(tmp_path / "b").journal) - before < 5


def test_the_old_primary_follows_the_new_one_and_its_tail_is_kept(tmp_path: Path) -> None:
    by_hand = replace(PAIR, commit_interval_ms=3_600_000)
    old = tmp_path / "killed"
    with serving(tmp_path / "a", by_hand) as (log, port):
        with standing_by(tmp_path / "b", port_of(port)) as standby:
            until(lambda: standby.is_live)
            write(log, 1, 10)
        write(log, 11, 12)  # alone, after the grace: nobody else has them
        image_of(tmp_path / "a", old)
    finish(tmp_path / "b")
    change_identity(open_root(old), lambda _: {"wal_dir": ""})
    with serving(tmp_path / "b") as (log, port):
        write(log, 21, 30)
        with standing_by(old, port_of(port)) as standby:
            until(lambda: standby.is_live)
            write(log, 31, 32)
    assert [*old.glob("wal/set-aside/*.wal")]
    finish(old)
    with opened(old):
        assert facts_in(old) == [*range(1, 11), *range(21, 33)]


def test_a_root_that_went_apart_is_set_aside_whole_when_no_job_works_on_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A job whose tables were moved would commit to those of the copy.

    Until it ends the primary is asked seldom, says so once, and of no copy that there is one.
    """
    with serving(tmp_path / "a") as (log, port):
        with standing_by(tmp_path / "b", port_of(port)) as standby:
            until(lambda: standby.is_live)
            write(log, 1, 5)
        finish(tmp_path / "b")
        with opened(tmp_path / "b") as other:  # somebody served it
            write(other, 6, 9)
        identity = {"role": STANDBY, "generation": 1}
        change_identity(open_root(tmp_path / "b"), lambda _: identity)
        write(log, 11, 15)
        caplog.clear()
        with standing_by(tmp_path / "b", port_of(port)) as standby:
            with jobs_lease(tmp_path / "b"):
                until(lambda: "another job is at work" in standby.trouble)
                until(lambda: standby._again_s > 1.0)  # asked twice
                assert "gets a copy" not in caplog.text
                assert not (tmp_path / "b" / "set-aside").exists()
            until(lambda: standby.is_live)
        assert caplog.text.count("gets a copy") == caplog.text.count("refuses: no copy") == 1
    (aside,) = (tmp_path / "b" / "set-aside").glob("*-root")
    assert (aside / "root.json").is_file()
    finish(tmp_path / "b")
    with opened(tmp_path / "b"):
        assert facts_in(tmp_path / "b") == [*range(1, 6), *range(11, 16)]


def test_without_a_standby_nothing_is_confirmed_where_it_always_must_be(tmp_path: Path) -> None:
    with serving(tmp_path / "a", replace(PAIR, synchronous="always")) as (log, port):
        waiting = append(log, 1)
        with standing_by(tmp_path / "b", port_of(port)) as standby:
            waiting.complete(30.0)
            assert standby.position >= log.synced_position
    unconfirmed = replace(PAIR, synchronous="always")
    with serving(tmp_path / "c", unconfirmed) as (log, _port):
        waiting = append(log, 1)
    assert "closed while there is no standby" in str(error_of(waiting))


def test_who_may_not_be_a_standby_is_told_why_and_the_primary_goes_on(tmp_path: Path) -> None:
    with opened(tmp_path / "other") as other:
        write(other, 1, 2)
    with serving(tmp_path / "a") as (log, port):
        write(log, 1, 3)
        number = port_of(port)
        assert "token is wrong" in str(refusal_of(tmp_path / "b", number, "another token of yours"))
        assert "of another store" in str(refusal_of(tmp_path / "other", number))
        image_of(tmp_path / "a", tmp_path / "twin")
        assert "a root of its own" in str(refusal_of(tmp_path / "twin", number))
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "letter").write_text("mine")
        assert "not empty: it holds 'letter'" in str(refusal_of(tmp_path / "full", number))
        write(log, 4, 6)
    assert (tmp_path / "full" / "letter").read_text() == "mine"


def test_the_watch_of_a_standby_ends_with_it_however_it_ends(tmp_path: Path) -> None:
    before = threading.enumerate()
    with serving(tmp_path / "a") as (_log, port):
        assert refusal_of(tmp_path / "b", port_of(port), "another token of yours") is not None
        watches = [one for one in threading.enumerate() if one.name == "witness watch"]
        for watch in {*watches} - {*before}:
            watch.join(TIMEOUT_S)
            assert not watch.is_alive()


def test_who_was_promoted_waits_until_an_older_primary_has_ended(tmp_path: Path) -> None:
    with serving(tmp_path / "a") as (log, port):
        with standing_by(tmp_path / "b", port_of(port)) as standby:
            until(lambda: standby.is_live)
        finish(tmp_path / "b")
        with standing_by(tmp_path / "b", port_of(port)) as standby:
            until(lambda: "that one took over, use it" in standby.trouble)
            write(log, 1, 3)
            assert not standby.is_live


def test_what_a_standby_lacks_is_counted_until_it_is_back(tmp_path: Path) -> None:
    with serving(tmp_path / "a", replace(PAIR, standby_grace_s=0.1)) as (log, port):
        shipping = log.shipping
        assert shipping is not None
        assert shipping.figures.is_alone
        with standing_by(tmp_path / "b", port_of(port)):
            until(lambda: shipping.figures.is_in_step)
            write(log, 1, 5)
            figures = shipping.figures
            assert not figures.is_alone
            assert (figures.lag_records, figures.lag_bytes, figures.lag_s) == (0, 0, 0)
        write(log, 6, 15, size=100)  # alone, after the grace
        figures = shipping.figures
        assert (figures.is_in_step, figures.is_alone, figures.lag_records) == (False, True, 10)
        assert figures.lag_bytes > 1_000
        assert figures.lag_s > 0
        with standing_by(tmp_path / "b", port_of(port)):
            until(lambda: shipping.figures.is_in_step)
            figures = shipping.figures
            assert (figures.lag_records, figures.lag_bytes, figures.lag_s) == (0, 0, 0)


def test_a_second_standby_waits_and_the_first_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(tmp_path / "a") as (log, port):
        with standing_by(tmp_path / "b", port_of(port)) as first:
            until(lambda: first.is_live)
            with standing_by(tmp_path / "c", port_of(port)) as second:
                until(lambda: "has a standby already" in second.trouble)
                until(lambda: second._again_s > 2.0)  # it has asked thrice, less and less often
                write(log, 1, 5)
                assert first.is_live
        lines = [record.getMessage() for record in caplog.records if record.levelno >= WARNING]
        by_primary = [line for line in lines if line.startswith("no standby at")]
        assert len([line for line in by_primary if "a second one is not served" in line]) == 1


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        ("crc", "damaged, or of another root or epoch"),
        ("epoch", "damaged, or of another root or epoch"),
        ("order", "the primary sent position"),
        ("kind", "out of its turn"),
        ("endless", "frame of kind"),
    ],
)
def test_a_group_that_is_not_the_next_one_ends_the_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, spoil: str, reason: str
) -> None:
    """The primary is played by this test from the moment that the standby is live."""
    with (
        serving(tmp_path / "a") as (log, port),
        standing_by(tmp_path / "b", port_of(port)) as standby,
    ):
        until(lambda: standby.is_live)
        identity, position = log.root.identity, standby.position
        shipping = log.shipping
        assert shipping is not None
        until(lambda: shipping._peer is not None)  # the standby says that it is live before that
        start = seed(bytes.fromhex(identity.root_id), log.epoch + (spoil == "epoch"))
        payload = log.pack([])
        first = position + 1 + (spoil == "order")
        group = encode_group(b"x" + payload, 1, first, 1, start) + (
            b"y" if spoil == "crc" else b"x"
        )
        peer = shipping._peer
        assert peer is not None
        with shipping._guard:
            if spoil == "kind":
                peer.send(PairFrame.ANSWER, POSITION.pack(0))
            elif spoil == "endless":
                peer._connection.sendall(b"\xff\xff\xff\xff\x09")
            else:
                peer.send(PairFrame.GROUP, POSITION.pack(0) + group)
            until(lambda: reason in caplog.text)  # the next connection has another trouble
            assert journal_tail(open_root(tmp_path / "b")).last_position == position
        write(log, 1, 3)  # the primary goes on, and so does the standby
        until(lambda: standby.is_live)


def test_a_port_takes_no_more_of_a_stranger_than_a_greeting(tmp_path: Path) -> None:
    with serving(tmp_path / "a") as (log, port):
        with socket.create_connection(("127.0.0.1", port_of(port))) as stranger:
            peer = Peer(stranger, "the primary", 10.0)
            peer.send(PairFrame.HELLO, b" " * (MOST_HELLO_BYTES + 1))
            with pytest.raises(Exception, match=r"ended the connection|cut off|refuses"):
                peer.receive(lambda _kind: 1 << 20)
        with socket.create_connection(("127.0.0.1", port_of(port))) as stranger:
            peer = Peer(stranger, "the primary", 10.0)
            hello = StandbyHello(PROTOCOL + 1, SCHEMA_VERSION, TOKEN, "d" * 32)
            peer.send(PairFrame.HELLO, as_json(hello._asdict()))
            with pytest.raises(InvalidRequest, match="another version"):
                peer.receive(lambda _kind: 1 << 20)
        write(log, 1, 2)


def test_silent_strangers_keep_no_standby_out(tmp_path: Path) -> None:
    with serving(tmp_path / "a") as (log, port):
        strangers = [socket.create_connection(("127.0.0.1", port_of(port))) for _ in range(12)]
        with standing_by(tmp_path / "b", port_of(port)) as standby:
            until(lambda: standby.is_live)
            write(log, 1, 2)
        for stranger in strangers:
            stranger.close()


def test_strangers_that_never_shake_hands_are_hung_up_on_and_keep_no_standby_out(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path / "authority")
    files = TlsFiles(*authority.issue("host", "/CN=host", names="IP:127.0.0.1"))
    trusting = ssl.create_default_context(cafile=str(authority.pair.certificate))
    with serving(tmp_path / "a", tls=server_context(files)) as (log, port):
        where = ("127.0.0.1", port_of(port))
        strangers = [socket.create_connection(where, GREETING_S / 2) for _ in range(12)]
        assert strangers[0].recv(1) == b""
        address = PeerAddress(*where, TOKEN, trusting)
        standby = StandBy(tmp_path / "b", PAIR, address)
        thread = threading.Thread(target=standby.run)
        thread.start()
        until(lambda: standby.is_live)
        write(log, 1, 2)
        standby.stop()
        thread.join(TIMEOUT_S)
        for stranger in strangers:
            stranger.close()
