"""Where clients come in: what the command line makes of it, and what it refuses."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

import pytest

from broker_shim.embedded.entrance import entrance_of
from broker_shim.embedded.options import parser
from broker_shim.errors import InvalidRequest
from broker_shim.security.guard import Remote
from broker_shim.security.users import User
from broker_shim.security.users_file import changing_users


def options(*arguments: str) -> argparse.Namespace:
    return parser().parse_args(["--memory", *arguments])


@pytest.fixture
def users(tmp_path: Path) -> str:
    with changing_users(tmp_path / "users.json") as found:
        found["ann"] = User("ann")
    return str(tmp_path / "users.json")


def test_without_options_this_machine_may_connect_and_nobody_is_asked() -> None:
    entrance = entrance_of(options())
    assert entrance.open(5672) == "amqp://127.0.0.1:5672"
    assert entrance.address.is_loopback
    assert not entrance.guard.requires_login


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


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--listen", "0.0.0.0:0"], "--insecure"),
        (["--listen", "[::]:0"], "--insecure"),
        (["--listen", "0.0.0.0:0", "--insecure"], "nobody could log in"),
        (["--listen", ":5672"], "HOST:PORT"),
        (["--listen", "127.0.0.1"], "HOST:PORT"),
        (["--listen", "127.0.0.1:99999"], "HOST:PORT"),
        (["--users", "NONE"], "make it with `sparkstore passwd`"),
        (["--tls-cert", "NONE"], "TLS needs both"),
        (["--tls-key", "NONE"], "TLS needs both"),
        (["--tls-client-ca", "NONE"], "needs TLS"),
        (["--tls-cert", "NONE", "--tls-key", "NONE"], "TLS: key"),
        (["--mechanisms", "PLAIN"], "PLAIN needs a users file"),
        (["--mechanisms", "MAGIC"], "mechanism 'MAGIC'"),
        (["--mechanisms", "PLAIN,"], "mechanism ''"),
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
