"""A broker on another machine: TLS, users by password and by certificate, and `--url` commands."""

from __future__ import annotations

import http.client
import json
import re
import ssl
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from broker_shim.security.passwords import secrets_of
from broker_shim.security.rules.users import LEAST_ITERATIONS, User
from broker_shim.security.users_file import changing_users
from sparkstore.cli.command_line import main
from tests.support.amqp.certificates import Authority, Pair
from tests.support.system.processes import StartBroker

pytestmark = [pytest.mark.system, pytest.mark.slow]

PASSWORD = "correct horse"
Run = Callable[..., tuple[int, str, str]]


class RemoteHouse:
    """A broker with TLS and users, and what its clients need."""

    def __init__(self, start_broker: StartBroker, folder: Path) -> None:
        self.authority = Authority(folder / "ca")
        server = self.authority.issue_server()
        self.ann = self.authority.issue("ann", "/CN=ann")
        users = folder / "users.json"
        with changing_users(users) as there:
            secrets = secrets_of(PASSWORD, LEAST_ITERATIONS)
            there["ada"] = User("ada", frozenset({"admin"}), secrets)
            there["ann"] = User("ann", frozenset({"operator"}), {})
        (folder / "password").write_text(PASSWORD + "\n")
        self.broker = start_broker(
            *(str(folder / "root"), "--http", "127.0.0.1:0", "--queue", "orders"),
            *("--tls-cert", str(server.certificate), "--tls-key", str(server.key)),
            *("--tls-client-ca", str(self.authority.pair.certificate), "--users", str(users)),
        )
        found = re.search(r" http=(https://127.0.0.1:(\d+))", self.broker.ready_line)
        assert found is not None
        self.url, self.port = found[1], int(found[2])
        self.ca = ("--url", self.url, "--ca-file", str(self.authority.pair.certificate))
        self.as_ada = (*self.ca, "--user", "ada", "--password-file", str(folder / "password"))
        self.as_ann = (
            *self.ca,
            "--cert",
            str(self.ann.certificate),
            "--cert-key",
            str(self.ann.key),
        )

    def status(self, shown: Pair | None, method: str = "GET", path: str = "/api/v1/self") -> int:
        """The status of a request with a client's certificate, or with no login."""
        context = ssl.create_default_context(cafile=self.authority.pair.certificate)
        if shown is not None:
            context.load_cert_chain(*shown)
        client = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=20, context=context)
        with closing(client):
            client.request(method, path)
            return client.getresponse().status


@pytest.fixture
def house(start_broker: StartBroker, tmp_path: Path) -> RemoteHouse:
    return RemoteHouse(start_broker, tmp_path)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: str) -> tuple[int, str, str]:
        code = main(words)
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


def test_a_certificate_is_a_login_with_the_roles_of_its_user(house: RemoteHouse) -> None:
    assert house.status(None) == 401
    assert house.status(house.ann) == 200
    assert house.status(house.ann, "DELETE", "/api/v1/queues/orders") == 403  # operator, no admin
    assert house.status(house.authority.issue("eve", "/CN=eve")) == 403  # no role
    with pytest.raises(OSError):  # noqa: PT011  # TLS ends it, in one of several ways
        house.status(Authority(house.ann.key.parent / "other", "other").issue("ann", "/CN=ann"))
    assert house.broker.terminate() == 0
    assert '"mechanism": "EXTERNAL"' in house.broker.log


def test_commands_administer_a_broker_by_its_url(house: RemoteHouse, run: Run) -> None:
    as_ada, as_ann = house.as_ada, house.as_ann
    code, out, _err = run("queues", *as_ada, "--json")
    assert (code, json.loads(out)["queue"]) == (0, "orders")
    code, out, _err = run("queue", "create", "calls", *as_ada, "--set", "max_depth=5", "--json")
    assert (code, json.loads(out)["changed"]) == (0, True)
    code, out, _err = run("queue", "show", "calls", *as_ann, "--json")
    assert json.loads(out)["arguments"] == {"max_depth": 5}
    code, out, _err = run("purge", "orders", *as_ann, "--dry-run", "--json")
    assert (code, json.loads(out)["count"]) == (0, 0)
    code, out, _err = run("purge", "orders", *as_ann, "--json")
    assert json.loads(out)["operation"] is None  # it took nothing off
    assert run("browse", "orders", *as_ann)[0] == run("connections", *as_ann)[0] == 0
    assert run("redrive", "orders", *as_ann, "--check")[0] == 0
    assert run("move", "orders", "--to", "calls", *as_ann)[0] == 0
    assert run("requeue", "orders", *as_ann)[0] == run("operations", *as_ann)[0] == 0
    asked = "SELECT queue, depth FROM queues ORDER BY queue"
    code, out, err = run("sql", asked, *as_ann, "--limit", "1", "--json")
    assert (code, json.loads(out)) == (0, {"queue": "calls", "depth": 0})
    assert "the first 1 rows are shown" in err
    _code, out, _err = run("sql", asked, *as_ann)
    assert out.split() == ["queue", "depth", "-" * 6, "-" * 5, "calls", "0", "orders", "0"]
    code, _out, err = run("sql", "COPY queues TO 'x'", *as_ann)
    assert (code, "only one SELECT" in err) == (2, True)
    code, out, _err = run("check", *as_ann, "--depth", "10:20")
    assert (code, out.startswith("SPARKSTORE OK")) == (0, True)
    code, _out, err = run("undo", "0a1b2c3d", *as_ann)
    assert (code, "no operation" in err) == (2, True)


def test_a_token_is_a_login_until_there_is_a_new_one(
    house: RemoteHouse, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = str(tmp_path / "users.json")
    code, out, _err = run("passwd", users, "ci", "--token", "--roles", "monitor")
    token = out.splitlines()[-1]
    assert (code, token in Path(users).read_text()) == (0, False)
    (file := tmp_path / "token").write_text(token + "\n")
    as_ci = (*house.ca, "--token-file", str(file))
    assert run("queues", *as_ci)[0] == 0
    assert "needs the role operator" in run("purge", "orders", *as_ci)[2]
    assert run("passwd", users, "ci", "--token")[0] == 0
    code, _out, err = run("queues", *as_ci)
    assert (code, "no user has this token" in err) == (2, True)
    monkeypatch.setenv("SPARKSTORE_TOKEN", token)
    assert run("queues", *house.ca)[0] in {2, 75}  # wrong again: refused, or told to wait
    assert "--user" in run("queues", *as_ci, "--user", "ada")[2]
    assert "ci\troles=monitor\ttoken" in run("passwd", users, "--list")[1]
    assert house.broker.terminate() == 0
    assert '"mechanism": "HTTP-BEARER"' in house.broker.log
    assert token not in house.broker.log


def test_each_refusal_is_one_line_with_what_to_do(house: RemoteHouse, run: Run) -> None:
    refused = (
        (("verify", *house.as_ada), 2, "run it where the root is"),
        (("queues", "--url", house.url), 2, "TLS"),
        (("queues", *house.ca), 2, "log in"),
        (("queues", *house.ca, "--user", "ada"), 2, "SPARKSTORE_PASSWORD"),
        (("queues", *house.ca, "--cert", "x.pem"), 2, "--cert and --cert-key"),
        (("queues", "--url", "ftp://x"), 2, "http://HOST:PORT"),
        (("queues", "--url", "http://broker.example", "--user", "ada"), 2, "unencrypted"),
        (("queues", "--url", "http://127.0.0.1:1"), 75, "does not answer"),
        (("queue", "create", "x", *house.as_ann), 2, "needs the role admin"),
        (("purge", "ordres", *house.as_ann), 2, "unknown queue"),
        (("move", "orders", "--to", "lost", *house.as_ann), 2, "unknown queue"),
    )
    for words, code, text in refused:
        told = run(*words)
        assert (told[0], told[1]) == (code, ""), words
        assert text in told[2], words
        assert told[2].count("\n") == 1, words
