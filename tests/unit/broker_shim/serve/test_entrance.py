"""Where clients come in: what the command line makes of it, and what it refuses."""

from __future__ import annotations

import argparse
import json
import logging
import signal
import socket
from pathlib import Path

import pytest

from broker_shim.broker.metrics import Metrics
from broker_shim.errors import InvalidRequest
from broker_shim.security.guard import Remote
from broker_shim.security.rules.users import User
from broker_shim.security.users_file import changing_users
from broker_shim.serve import command
from broker_shim.serve.entrance import entrance_of
from broker_shim.serve.options import parser, settings_of
from broker_shim.serve.reporting import Reporter
from broker_shim.serve.stores import stores_of
from broker_shim.service.service_options import service_addresses_of
from broker_shim.store.memory import MemoryMessageStore
from sparkstore.exit_codes import ExitCode
from tests.support.amqp.certificates import Authority
from tests.support.delivery.places import Home


def options(*arguments: str) -> argparse.Namespace:
    return parser().parse_args(["--memory", *arguments])


@pytest.fixture
def users(tmp_path: Path) -> str:
    with changing_users(tmp_path / "users.json") as found:
        found["ann"] = User("ann")
    return str(tmp_path / "users.json")


def test_without_options_this_machine_may_connect_and_nobody_is_asked() -> None:
    entrance = entrance_of(options())
    port = entrance.take_port().getsockname()[1]
    assert entrance.open() == f"amqp://127.0.0.1:{port}"
    entrance.close()
    assert entrance.address.is_loopback
    assert not entrance.guard.requires_login


def test_a_port_is_taken_before_anything_else_and_answers_once_it_is_open() -> None:
    entrance = entrance_of(options("--listen", "127.0.0.1:0"))
    address = entrance.take_port().getsockname()
    late = entrance_of(options("--listen", f"127.0.0.1:{address[1]}"))
    late.take_port()  # as long as neither listens
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
    entrance.open()
    socket.create_connection(address).close()
    later = entrance_of(options("--listen", f"127.0.0.1:{address[1]}"))
    for refused in (late.open, later.take_port):
        with pytest.raises(InvalidRequest, match=r"--listen 127.0.0.1:\d+: Address already in"):
            refused()
    late.close()
    entrance.close()


def test_with_users_everybody_logs_in(users: str) -> None:
    entrance = entrance_of(options("--users", users))
    assert entrance.guard.requires_login
    offered = ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"]
    assert [*entrance.guard.mechanisms(Remote())] == offered


def test_an_option_goes_before_the_setting(users: str, tmp_path: Path) -> None:
    file = tmp_path / "sparkstore.toml"
    file.write_text("[security]\nusers = 'none'\nmechanisms = ['PLAIN']\n")
    entrance = entrance_of(options("--config", str(file), "--users", users))
    assert [*entrance.guard.mechanisms(Remote())] == ["PLAIN"]


def test_one_port_for_both_protocols_is_asked_for_by_a_word_or_by_its_address() -> None:
    entrance = entrance_of(options("--listen", "127.0.0.1:0", "--amqp-0-10", "same"))
    port = entrance.take_port().getsockname()[1]
    assert (entrance.is_shared, entrance.second) == (True, None)
    assert entrance.in_force.get("amqp-0-10") is None
    assert entrance.open() == entrance.in_force["amqp-0-10"]
    entrance.close()
    told = f"127.0.0.1:{port}"
    assert entrance_of(options("--listen", told, "--amqp-0-10", told)).is_shared
    two = entrance_of(options("--listen", "127.0.0.1:0", "--amqp-0-10", "127.0.0.1:0"))
    assert not two.is_shared
    assert two.second is not None


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--listen", "0.0.0.0:0"], "--insecure"),
        (["--listen", "[::]:0"], "--insecure"),
        (["--listen", "0.0.0.0:0", "--insecure"], "nobody could log in"),
        (["--listen", ":5672"], "HOST:PORT"),
        (["--listen", "127.0.0.1"], "HOST:PORT"),
        (["--listen", "127.0.0.1:99999"], "HOST:PORT"),
        (["--amqp-0-10", "Same"], "--amqp-0-10 Same: write it as HOST:PORT"),
        (
            ["--listen", "::1"],
            r"--listen ::1: an IPv6 address stands in brackets, as in \[::1\]:5672",
        ),
        (["--listen", "::1:5672"], r"stands in brackets, as in \[::1\]:5672"),
        (["--users", "NONE"], "make it with `sparkstore passwd`"),
        (["--tls-cert", "NONE"], "TLS needs both"),
        (["--tls-key", "NONE"], "TLS needs both"),
        (["--tls-client-ca", "NONE"], "needs TLS"),
        (["--tls-cert", "NONE", "--tls-key", "NONE"], "TLS: key"),
        (["--mechanisms", "PLAIN"], "PLAIN needs a users file"),
        (["--mechanisms", "MAGIC"], "mechanisms has 'MAGIC'"),
        (["--mechanisms", "PLAIN,"], "mechanisms has ''"),
        (["--users", ""], "without a value"),
        (["--audit-file", "NONE/audit"], "audit file"),
    ],
)
def test_what_would_be_open_or_cannot_be_is_refused_in_one_line(
    tmp_path: Path, arguments: list[str], says: str
) -> None:
    told = [each.replace("NONE", str(tmp_path / "none")) for each in arguments]
    with pytest.raises(InvalidRequest, match=says) as refused:
        entrance_of(options(*told))
    assert "\n" not in str(refused.value)


def test_insecure_is_said_loudly(users: str, caplog: pytest.LogCaptureFixture) -> None:
    entrance_of(options("--listen", "0.0.0.0:0", "--insecure", "--users", users))
    assert "has no TLS" in caplog.text
    caplog.clear()
    entrance_of(options("--listen", "0.0.0.0:0", "--insecure", "--mechanisms", "ANONYMOUS"))
    assert "may connect without a name, and do everything" in caplog.text


@pytest.mark.parametrize(("days", "is_told"), [(-1, True), (2, False)])
def test_an_expired_certificate_is_told_at_the_start_and_when_it_is_read_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, days: int, *, is_told: bool
) -> None:
    server = Authority(tmp_path).issue("server", "/CN=localhost", days=days)
    said = options("--tls-cert", str(server.certificate), "--tls-key", str(server.key))
    entrance = entrance_of(said)
    assert ("expired on" in caplog.text) == is_told
    caplog.clear()
    entrance.reload(said)
    assert ("expired on" in caplog.text) == is_told


def test_what_is_in_force_is_told(users: str, tmp_path: Path) -> None:
    assert entrance_of(options()).in_force == {
        "mechanisms": "ANONYMOUS",
        "users": "no",
        "permissions": "no",
        "tls": "no",
    }
    file = tmp_path / "sparkstore.toml"
    file.write_text(
        "[security]\npermissions = [{who = ['ann'], address = '#', allow = ['read']}]\n"
    )
    authority = Authority(tmp_path)
    server = authority.issue_server()
    said = ["--tls-cert", str(server.certificate), "--tls-key", str(server.key)]
    said += ["--users", users, "--config", str(file)]
    entrance = entrance_of(options(*said, "--mechanisms", "PLAIN"))
    assert entrance.in_force == {
        "mechanisms": "PLAIN",
        "users": "1",
        "permissions": "1",
        "tls": "yes",
    }
    said += ["--tls-client-ca", str(authority.pair.certificate)]
    assert entrance_of(options(*said)).in_force["tls"] == "clients"


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        (["root", "--store=unix:s"], "give one of ROOT, --store URL"),
        (["--memory", "--store=unix:s"], "give one of ROOT, --store URL"),
        (["root", "--member=b"], "--member NAME is for --store URL"),
        (["--store="], "write it as unix:PATH or tcp:HOST:PORT"),
        (["--store=unix:"], "write it as unix:PATH or tcp:HOST:PORT"),
        (["--store=http://x"], "write it as unix:PATH or tcp:HOST:PORT"),
        (["--store=tcp:x", "--token-file=t"], "tcp:x: write it as tcp:HOST:PORT"),
        (["--store=tcp:127.0.0.1:1"], "needs --token-file FILE"),
        (["--store=unix:s", "--member="], "1 to 200 characters without a slash"),
        (["--store=unix:s", "--member=a/b"], "1 to 200 characters without a slash"),
        (["--store=unix:s", "--member=" + 201 * "x"], "1 to 200 characters without a slash"),
        (["--store=unix:s", "--listen=127.0.0.1:0"], "give --member NAME: the port is another"),
        (["--store=unix:s", "--accept-loss"], "--accept-loss is for a root"),
        (["--memory", "--accept-loss"], "--accept-loss is for a root"),
        (["--store=unix:s", "--accept-durable"], "--accept-durable is for --memory"),
    ],
)
def test_a_member_is_asked_for_by_its_own_options(said: list[str], hint: str) -> None:
    with pytest.raises(InvalidRequest, match=hint):
        settings_of(parser().parse_args(said))


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        (["root", "--token-file=t"], "--token-file is for --store-listen HOST:PORT, --store URL"),
        (["root", "--store-listen=127.0.0.1:0"], "needs --token-file FILE"),
        (["--memory", "--store-socket=s"], "the store service needs a root"),
        (["--store=unix:s", "--store-socket=s"], "the store service needs a root"),
    ],
)
def test_a_service_is_asked_for_with_all_that_it_needs(said: list[str], hint: str) -> None:
    with pytest.raises(InvalidRequest, match=hint):
        service_addresses_of(parser().parse_args(said))


@pytest.mark.parametrize("as_json", [True, False])
def test_the_first_line_says_what_is_in_force(
    capsys: pytest.CaptureFixture[str], *, as_json: bool
) -> None:
    said = options("--json") if as_json else options()
    command.announce(["amqp://h:1", "unix:/s"], {"tls": "no", "keeps": "none"}, said)
    told = capsys.readouterr().out
    if as_json:
        assert json.loads(told) == {
            "ready": "amqp://h:1",
            "root": None,
            "store": ["unix:/s"],
            "tls": "no",
            "keeps": "none",
        }
    else:
        assert told == "READY amqp://h:1 root=(memory) store=unix:/s tls=no keeps=none\n"


@pytest.mark.parametrize(
    "words", [["--queue", ""], ["--multicast", ""], ["--exchange", ":topic"], ["--bind", "a:b:"]]
)
def test_an_empty_name_is_a_wrong_command_line(
    capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert command.main(["--memory", *words]) == ExitCode.WRONG_CALL
    assert "a name is needed" in capsys.readouterr().err


def test_counters_that_cannot_be_written_do_not_spoil_a_clean_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled: list[object] = []
    monkeypatch.setattr(signal, "signal", lambda number, _handler: handled.append(number))
    stores = stores_of(MemoryMessageStore())
    reporter = Reporter(tmp_path / "none" / "metrics")
    reporter.write()
    options = argparse.Namespace(store=None, stop_requests=[])
    assert command.end(stores, [], Metrics(), options) == ExitCode.DONE
    # Asked once more it is ending already, and has nothing to read.
    assert handled == [signal.SIGHUP, signal.SIGUSR1, signal.SIGTERM, signal.SIGINT]


def test_a_reload_that_cannot_be_is_told_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "sparkstore.toml"
    rule = "permissions = [{who = ['ann'], address = '#', allow = ['read']}]"
    file.write_text(f"[security]\n{rule}\n")
    said = options("--config", str(file))
    entrance = entrance_of(said)
    with caplog.at_level(logging.INFO):
        entrance.reload(said)
        assert "were read again" in caplog.text
        file.write_text("[security]\npermissions = [1]\n")
        caplog.clear()
        entrance.reload(said)
    assert "are as they were" in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    ("before", "after", "unread"),
    [
        ("[broker]\ncredit = 5\n", "[broker]\ncredit = 6\n", "[broker] credit"),
        ("", "[store]\nack = 'wal'\n[broker]\nqueues = ['q']\n", "[broker] queues, [store] ack"),
        ("[security]\nfailed_login_delay_s = 1\n", "", "[security] failed_login_delay_s"),
        ("[security]\nPERMIT\n", "[security]\nPERMIT_MORE\n", ""),
        ("[broker]\ncredit = 5\n", "[broker]\ncredit = 5\n", ""),
    ],
    ids=["changed", "added", "left out", "permissions", "nothing"],
)
def test_a_reload_names_what_it_did_not_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, before: str, after: str, unread: str
) -> None:
    more = "permissions = [{who = ['ann'], address = '#', allow = ['read', 'write']}]"
    rule = more.replace(", 'write'", "")
    file = tmp_path / "sparkstore.toml"
    file.write_text(before.replace("PERMIT", rule))
    entrance = entrance_of(said := options("--config", str(file)))
    file.write_text(after.replace("PERMIT_MORE", more))
    for _ in range(2):  # it is not in force after the first one either
        caplog.clear()
        entrance.reload(said)
        told = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
        assert told == (
            [f"SIGHUP does not read {unread}: what they say now counts from the next start"]
            if unread
            else []
        )


def test_a_reload_sets_the_policies_of_the_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, home = tmp_path / "sparkstore.toml", Home("alone", tmp_path)
    file.write_text("")
    place = home.place()
    place.create("q")
    entrance = entrance_of(said := options("--config", str(file)))
    rule = "[broker]\npolicies = [{{name = 'p', match = '#', arguments = {{{}}}}}]\n"
    for arguments, depth, line in (
        ("max_depth = 4", 4, "policy 'p' set, 1 queues altered"),
        ("max_dpth = 5", 4, "did you mean 'max_depth'"),
        ("max_depth = 6", 6, "policy 'p' set, 1 queues altered"),
    ):
        caplog.clear()
        file.write_text(rule.format(arguments))
        with caplog.at_level(logging.INFO):
            entrance.reload(said, place.broker)
            place.run()
        assert place.broker.queues["q"].arguments.max_depth == depth
        assert line in caplog.text
        assert "does not read" not in caplog.text
    home.close()


def test_what_an_option_says_instead_of_the_file_is_not_read_from_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = Authority(tmp_path).issue_server()
    file = tmp_path / "sparkstore.toml"
    file.write_text("")
    pair = ("--tls-cert", str(server.certificate), "--tls-key", str(server.key))
    entrance = entrance_of(said := options("--config", str(file), *pair))
    file.write_text("[security]\ntls_cert = 'other.pem'\ntls_key = 'other.key'\n")
    entrance.reload(said)
    assert "does not read [security] tls_cert, [security] tls_key:" in caplog.text
