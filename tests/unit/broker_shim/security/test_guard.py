"""TLS, the audit log, what is offered where, and the guard who asks for all of it."""

from __future__ import annotations

import json
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scramp import ScramClient

from broker_shim.errors import InvalidRequest
from broker_shim.protocol_1_0.sasl.exchange import Challenge, Passed, Refused
from broker_shim.security.guard import Guard, Remote
from broker_shim.security.passwords import secrets_of
from broker_shim.security.rules.permissions import AccessTarget, Permission, rule_of
from broker_shim.security.rules.users import LEAST_ITERATIONS, User
from broker_shim.security.security_settings import (
    MECHANISMS,
    SecuritySettings,
    offered_mechanisms,
    read_security,
)
from broker_shim.security.tls import TlsFiles, certificate_name, server_context
from broker_shim.security.users_file import changing_users
from sparkstore.control.audit import (
    AuditEvent,
    add_audit_file,
    audit_line,
    remove_audit_file,
    write_audit,
)
from tests.support.amqp.certificates import Authority, Pair

PEER = Remote("10.0.0.7", 40312, "TLSv1.3")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def server(authority: Authority) -> Pair:
    return authority.issue_server()


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "users.json"
    with changing_users(path) as found:
        secrets = secrets_of("secret", LEAST_ITERATIONS)
        found["ann"] = User("ann", frozenset({"shop"}), secrets)
        found["host7"] = User("host7", frozenset({"fleet"}))
    return path


# --------------------------------------------------------------------------------------- TLS


def shaken(
    server_side: ssl.SSLContext, client_side: ssl.SSLContext
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both ends after a handshake in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        server_side.wrap_bio(to_server, to_client, server_side=True),
        client_side.wrap_bio(to_client, to_server, server_hostname="localhost"),
    )
    for _ in range(10):
        for end in (*ends, *ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    for end in ends:
        end.do_handshake()
    return ends


def client_context(authority: Authority, pair: Pair | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.pair.certificate)
    if pair is not None:
        context.load_cert_chain(*pair)
    return context


def test_a_client_without_a_certificate_is_served_and_one_with_is_known(
    authority: Authority, server: Pair
) -> None:
    context = server_context(TlsFiles(*server, authority.pair.certificate))
    end, _ = shaken(context, client_context(authority))
    assert certificate_name(end.getpeercert()) is None
    ann = authority.issue("ann", "/O=shop/CN=ann", names="DNS:else")
    end, _ = shaken(context, client_context(authority, ann))
    assert certificate_name(end.getpeercert()) == "ann"
    host = authority.issue("host", "/O=shop", names="DNS:host7,URI:spiffe://shop/host7")
    end, _ = shaken(context, client_context(authority, host))
    assert certificate_name(end.getpeercert()) == "spiffe://shop/host7"


def test_a_certificate_of_a_strange_authority_ends_the_handshake(
    authority: Authority, server: Pair, tmp_path: Path
) -> None:
    context = server_context(TlsFiles(*server, authority.pair.certificate))
    stranger = Authority(tmp_path / "strange", "stranger").issue("ann", "/CN=ann")
    with pytest.raises(ssl.SSLError):
        shaken(context, client_context(authority, stranger))


def test_tls_older_than_1_2_is_not_spoken(authority: Authority, server: Pair) -> None:
    old = client_context(authority)
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="deprecated"):
        old.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.warns(DeprecationWarning, match="deprecated"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError):
        shaken(server_context(TlsFiles(*server)), old)


@pytest.mark.parametrize("name", ["anonymous", "*", "role:admin", "a\tb"])
def test_a_certificate_cannot_have_a_name_that_no_user_has(name: str) -> None:
    assert certificate_name({"subject": ((("commonName", name),),)}) is None


def test_files_that_make_no_server_are_refused_in_one_line(
    authority: Authority, server: Pair, tmp_path: Path
) -> None:
    empty = tmp_path / "empty.pem"
    empty.touch(0o600)
    other = authority.issue("other", "/CN=other")
    cases = [
        TlsFiles(tmp_path / "none.pem", server.key),
        TlsFiles(server.certificate, tmp_path / "none.key"),
        TlsFiles(server.certificate, other.key),
        TlsFiles(empty, server.key),
        TlsFiles(server.certificate, empty),
        TlsFiles(*server, empty),
        TlsFiles(*server, tmp_path / "none.ca"),
    ]
    for files in cases:
        with pytest.raises(InvalidRequest, match="TLS: ") as refused:
            server_context(files)
        assert "\n" not in str(refused.value)


def test_a_key_that_everybody_can_read_is_refused(server: Pair, tmp_path: Path) -> None:
    key = tmp_path / "open.key"
    key.write_bytes(server.key.read_bytes())
    key.chmod(0o644)
    with pytest.raises(InvalidRequest, match="can be read or written by everybody"):
        server_context(TlsFiles(server.certificate, key))


def test_an_encrypted_key_is_refused_and_nobody_is_asked(
    authority: Authority, server: Pair, tmp_path: Path
) -> None:
    key = tmp_path / "encrypted.key"
    authority._openssl("ec", "-in", server.key, "-out", key, "-aes256", "-passout", "pass:secret")
    with pytest.raises(InvalidRequest, match="the key is encrypted"):
        server_context(TlsFiles(server.certificate, key))


# ------------------------------------------------------------------------------------- audit


def test_a_line_is_one_line_whatever_a_client_chose() -> None:
    line = audit_line(AuditEvent.LOGIN_FAILED, "now", user='a\n"\x1b[2J\u202e' + "x" * 10_000)
    assert line.isascii()
    assert line.isprintable()
    assert len(line) < 1_000
    assert json.loads(line)["user"].startswith('a\n"\x1b[2J\u202e')


def test_lines_go_to_a_file_of_its_owner_alone_and_survive_rotation(tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    handler = add_audit_file(file)
    try:
        write_audit(AuditEvent.LOGIN, peer=PEER, user="ann", mechanism=None)
        file.rename(tmp_path / "audit.log.1")
        write_audit(AuditEvent.LOGIN, peer=PEER, user="bob")
    finally:
        remove_audit_file(handler)
    write_audit(AuditEvent.LOGIN, user="after")
    assert file.stat().st_mode & 0o777 == 0o600
    old, new = (json.loads(f.read_text()) for f in (tmp_path / "audit.log.1", file))
    assert (old["event"], old["peer"], old["user"]) == ("login", "10.0.0.7:40312", "ann")
    assert "mechanism" not in old
    assert new["user"] == "bob"


def test_an_audit_file_that_others_read_or_that_is_a_link_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    file.touch(0o644)
    with pytest.raises(InvalidRequest, match="chmod 600"):
        add_audit_file(file)
    link = tmp_path / "link.log"
    link.symlink_to(file)
    with pytest.raises(InvalidRequest, match="audit file"):
        add_audit_file(link)
    with pytest.raises(InvalidRequest, match="No such file"):
        add_audit_file(tmp_path / "none" / "audit.log")


# ------------------------------------------------------------------------- what is offered where

TLS = {"tls_cert": "c", "tls_key": "k"}
PUBLIC = {**TLS, "users": "u", "mechanisms": ("ANONYMOUS", "PLAIN")}
RULES = (rule_of({"who": ["*"], "address": "news.#", "allow": ["read"]}),)


@pytest.mark.parametrize(
    ("settings", "is_loopback", "is_insecure", "offered"),
    [
        ({}, True, False, ["ANONYMOUS"]),
        ({"users": "u"}, True, False, ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"]),
        (TLS, True, False, ["ANONYMOUS"]),
        ({**TLS, "tls_client_ca": "a"}, True, False, ["EXTERNAL"]),
        ({**TLS, "tls_client_ca": "a", "users": "u"}, False, False, [*MECHANISMS[:4]]),
        ({**TLS, "users": "u", "mechanisms": ("PLAIN",)}, False, False, ["PLAIN"]),
        ({**PUBLIC, "permissions": RULES}, False, False, ["PLAIN", "ANONYMOUS"]),
        (PUBLIC, False, True, ["PLAIN", "ANONYMOUS"]),
        ({"users": "u"}, False, True, ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"]),
        ({"mechanisms": ("ANONYMOUS",)}, False, True, ["ANONYMOUS"]),
        ({"users": "u", "mechanisms": ("ANONYMOUS", "PLAIN")}, True, False, ["PLAIN", "ANONYMOUS"]),
    ],
)
def test_mechanisms_are_what_the_files_make_possible(
    settings: dict[str, Any], is_loopback: bool, is_insecure: bool, offered: list[str]
) -> None:
    found = offered_mechanisms(
        SecuritySettings(**settings), "host:1", is_loopback=is_loopback, is_insecure=is_insecure
    )
    assert [*found] == offered


@pytest.mark.parametrize(
    ("settings", "is_loopback", "is_insecure", "says"),
    [
        ({}, False, False, "--insecure"),
        ({"users": "u"}, False, False, "--tls-cert"),
        (TLS, False, False, "--users"),
        ({**TLS, "mechanisms": ("ANONYMOUS",)}, False, False, "--users"),
        (PUBLIC, False, False, "give .security. permissions"),
        ({}, False, True, "nobody could log in"),
        ({"mechanisms": ("PLAIN",)}, True, False, "PLAIN needs a users file"),
        ({"mechanisms": ("EXTERNAL",), "users": "u"}, True, False, "EXTERNAL needs clients'"),
    ],
)
def test_a_listener_that_is_open_to_all_or_to_none_is_refused(
    settings: dict[str, Any], is_loopback: bool, is_insecure: bool, says: str
) -> None:
    with pytest.raises(InvalidRequest, match=says):
        offered_mechanisms(
            SecuritySettings(**settings), "host:1", is_loopback=is_loopback, is_insecure=is_insecure
        )


@pytest.mark.parametrize(
    "content",
    [
        "userz = 'x'",
        "users = 1",
        "mechanisms = 'PLAIN'",
        "mechanisms = ['GSSAPI']",
        "mechanisms = [1]",
        "tls_cert = 'x'",
        "tls_client_ca = 'x'",
        "failed_login_delay_s = 9",
        "failed_login_delay_s = true",
        "permissions = [1]",
        "permissions = [{who = ['ann'], address = 'x', allow = ['fly']}]",
        "permissions = [{who = ['ann'], adress = 'x', allow = ['read']}]",
        "permissions = [{who = ['ann'], address = 'x'}]",
        "permissions = {}",
    ],
)
def test_a_setting_that_is_none_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "sparkstore.toml"
    file.write_text(f"[security]\n{content}\n")
    with pytest.raises(InvalidRequest):
        read_security(file)


def test_settings_are_read(tmp_path: Path) -> None:
    file = tmp_path / "sparkstore.toml"
    file.write_text(
        "[security]\nusers = 'u'\nmechanisms = ['PLAIN']\nfailed_login_delay_s = 1\n"
        "permissions = [{who = ['ann'], address = 'x.#', allow = ['read']}]\n"
    )
    rule = rule_of({"who": ["ann"], "address": "x.#", "allow": ["read"]})
    assert read_security(file) == SecuritySettings(
        "u", ("PLAIN",), permissions=(rule,), failed_login_delay_s=1
    )


# ------------------------------------------------------------------------------------- the guard


class Heard:
    """Audit lines as they are said."""

    def __init__(self) -> None:
        self.lines: list[tuple[AuditEvent, dict[str, Any]]] = []

    def __call__(self, event: AuditEvent, **details: object) -> None:
        self.lines.append((event, details))


@pytest.fixture
def heard() -> Heard:
    return Heard()


def test_a_user_gets_in_by_plain_and_by_scram(users: Path, heard: Heard) -> None:
    guard = Guard(SecuritySettings(str(users)), MECHANISMS[1:4], heard)
    offered = guard.mechanisms(PEER)
    assert [*offered] == ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"]
    assert offered["PLAIN"]().step(b"\0ann\0secret") == Passed("ann")
    assert isinstance(offered["PLAIN"]().step(b"\0ann\0wrong"), Refused)
    for kind in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        client, exchange = ScramClient([kind], "ann", "secret"), offered[kind]()
        asked = exchange.step(client.get_client_first().encode())
        assert isinstance(asked, Challenge)
        client.set_server_first(asked.challenge.decode())
        passed = exchange.step(client.get_client_final().encode())
        assert isinstance(passed, Passed)
        assert passed.identity == "ann"
        client.set_server_final((passed.additional or b"").decode())
    principal = guard.let_in(PEER, "PLAIN", "ann")
    assert principal.roles == {"shop"}
    assert heard.lines == [
        (
            AuditEvent.LOGIN,
            {"peer": PEER, "user": "ann", "mechanism": "PLAIN", "tls": "TLSv1.3"},
        )
    ]


def asked(users: Path, kind: str, name: str) -> list[bytes]:
    """What a broker that starts now asks of somebody: its salt, and how many rounds."""
    exchange = Guard(SecuritySettings(str(users)), MECHANISMS[1:4]).mechanisms(PEER)[kind]()
    answer = exchange.step(f"n,,n={name},r=nonce".encode())
    assert isinstance(answer, Challenge)
    return answer.challenge.split(b",")[1:]


def test_nobody_is_told_by_what_it_is_asked_from_somebody(tmp_path: Path) -> None:
    path = tmp_path / "users.json"
    with changing_users(path) as found:
        found["ann"] = User("ann", secrets=secrets_of("secret"))
    for name in ("ann", "nobody"):
        old, new = (asked(path, "SCRAM-SHA-256", name) for _ in range(2))
        other_salt, other_rounds = asked(path, "SCRAM-SHA-512", name)
        assert old == new
        assert other_salt != old[0]
        assert other_rounds == old[1] == b"i=10000"
        assert len(old[0]) == len(other_salt)


def test_external_is_offered_to_who_has_a_certificate(users: Path) -> None:
    guard = Guard(SecuritySettings(str(users)), MECHANISMS[:4])
    assert "EXTERNAL" not in guard.mechanisms(PEER)
    offered = guard.mechanisms(PEER._replace(certificate_name="host7"))
    assert offered["EXTERNAL"]().step(b"") == Passed("host7")
    assert guard.let_in(PEER, "EXTERNAL", "host7").roles == {"fleet"}
    only = Guard(SecuritySettings(), ("EXTERNAL",)).mechanisms(PEER)
    assert isinstance(only["EXTERNAL"]().step(b""), Refused)


def test_a_peer_may_leave_out_sasl_only_where_anonymous_is_offered(users: Path) -> None:
    assert not Guard(SecuritySettings()).requires_login
    assert Guard(SecuritySettings(str(users)), ("PLAIN",)).requires_login
    assert [*Guard(SecuritySettings()).mechanisms(PEER)] == ["ANONYMOUS"]


def test_a_failed_login_waits_and_is_written_down(heard: Heard) -> None:
    guard = Guard(SecuritySettings(failed_login_delay_s=0.25), audit=heard)
    delays = [guard.login_failed(PEER, "PLAIN", "not the password", now) for now in (1.0, 2.0)]
    assert delays == [0.25, 0.5]
    assert guard.counts.failed_logins == 2
    assert heard.lines[0][0] is AuditEvent.LOGIN_FAILED
    assert heard.lines[0][1]["reason"] == "not the password"


def test_what_is_not_allowed_is_refused_and_written_down(heard: Heard) -> None:
    rules = (rule_of({"who": ["ann"], "address": "orders", "allow": ["read"]}),)
    guard = Guard(SecuritySettings(permissions=rules), audit=heard)
    ann, place = guard.let_in(PEER, "PLAIN", "ann"), AccessTarget("orders", "orders")
    assert guard.allows(ann, Permission.READ, place)
    assert not guard.allows(ann, Permission.WRITE, place)
    guard.refused(PEER, ann, Permission.WRITE, place)
    assert guard.counts.refused_permissions == 1
    event, details = heard.lines[-1]
    assert event is AuditEvent.PERMISSION_REFUSED
    assert (details["user"], details["act"], details["address"]) == ("ann", "write", "orders")


@pytest.fixture
def tls_settings(server: Pair) -> Callable[..., SecuritySettings]:
    def make(pair: Pair = server, **more: Any) -> SecuritySettings:
        return SecuritySettings(tls_cert=str(pair.certificate), tls_key=str(pair.key), **more)

    return make


def test_a_reload_takes_a_renewed_certificate_and_other_permissions(
    authority: Authority, tls_settings: Callable[..., SecuritySettings], heard: Heard
) -> None:
    guard = Guard(tls_settings(), audit=heard)
    assert guard.context is not None
    ann, place = guard.let_in(PEER, "PLAIN", "ann"), AccessTarget("orders")
    renewed = authority.issue("renewed", "/CN=renewed", names="DNS:localhost")
    rules = (rule_of({"who": ["bob"], "address": "#", "allow": ["admin"]}),)
    guard.reload(tls_settings(renewed, permissions=rules))
    assert not guard.allows(ann, Permission.READ, place)
    _, client_end = shaken(guard.context, client_context(authority))
    subject = client_end.getpeercert()
    assert subject is not None
    assert certificate_name(subject) == "renewed"
    assert heard.lines[-1][0] is AuditEvent.SECURITY_RELOADED


def test_a_reload_that_fails_changes_nothing(
    tls_settings: Callable[..., SecuritySettings], tmp_path: Path
) -> None:
    guard = Guard(tls_settings())
    context, missing = guard.context, Pair(tmp_path / "none", tmp_path / "none")
    rules = (rule_of({"who": ["bob"], "address": "#", "allow": ["admin"]}),)
    with pytest.raises(InvalidRequest):
        guard.reload(tls_settings(missing, permissions=rules))
    with pytest.raises(InvalidRequest, match="restart"):
        guard.reload(SecuritySettings(permissions=rules))
    assert guard.context is context
    assert guard.allows(guard.let_in(PEER, "PLAIN", "ann"), Permission.READ, AccessTarget("orders"))


def test_a_reload_without_the_permissions_there_were_opens_nothing(
    tls_settings: Callable[..., SecuritySettings],
) -> None:
    rules = (rule_of({"who": ["bob"], "address": "#", "allow": ["admin"]}),)
    guard = Guard(tls_settings(permissions=rules))
    with pytest.raises(InvalidRequest, match="would allow everything: restart"):
        guard.reload(tls_settings())
    assert not guard.allows(
        guard.let_in(PEER, "PLAIN", "ann"), Permission.READ, AccessTarget("orders")
    )


def test_lines_go_to_the_log_too(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "sparkstore.audit"):
        write_audit(AuditEvent.STARTED, listen="amqp://127.0.0.1:5672")
    assert json.loads(caplog.records[0].message)["event"] == "started"
