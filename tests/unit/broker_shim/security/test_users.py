"""The users file, passwords in it, and its command."""

from __future__ import annotations

import fcntl
import getpass
import io
import json
import os
import sys
import threading
from pathlib import Path

import pytest

from broker_shim.errors import InvalidRequest
from broker_shim.security.passwd import main
from broker_shim.security.passwords import (
    MOST_PASSWORD_BYTES,
    Passwords,
    secrets_of,
    user_of_token,
)
from broker_shim.security.rules.users import (
    LEAST_ITERATIONS,
    MOST_ITERATIONS,
    User,
    UsersFileContent,
    check_name,
    decoded,
    encoded,
)
from broker_shim.security.users_file import UsersFile, changing_users, read_users

QUICK = LEAST_ITERATIONS


def user(name: str, password: str, *roles: str) -> User:
    return User(name, frozenset(roles), secrets_of(password, QUICK))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A users file with ann in it."""
    path = tmp_path / "users.json"
    with changing_users(path) as users:
        users["ann"] = user("ann", "secret", "shop")
    return path


def test_users_come_back_as_they_were_written() -> None:
    users = {"ann": user("ann", "secret", "shop", "audit"), "zoë": User("zoë")}
    for content in (UsersFileContent(users, b"k" * 32), UsersFileContent(users)):
        assert decoded(encoded(content)) == content


def test_nobody_but_its_owner_may_read_the_file(file: Path) -> None:
    assert file.stat().st_mode & 0o777 == 0o600
    with changing_users(file) as users:
        del users["ann"]
    assert file.stat().st_mode & 0o777 == 0o600
    assert [*file.parent.iterdir()] == [file]


def test_the_password_is_not_in_the_file(file: Path) -> None:
    assert "secret" not in json.loads(file.read_text())["users"]["ann"].values()
    assert b'secret"' not in file.read_bytes().replace(b'"secrets"', b"")


def test_two_users_with_one_password_have_nothing_in_common() -> None:
    first, second = secrets_of("secret", QUICK), secrets_of("secret", QUICK)
    for kind, secret in first.items():
        assert not {*secret[:3]} & {*second[kind][:3]}


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602])
def test_a_file_that_is_open_to_others_is_refused(file: Path, mode: int) -> None:
    file.chmod(mode)
    with pytest.raises(InvalidRequest, match="can be read by others: chmod 600 it"):
        read_users(file)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not JSON"),
        (b'{"version": 1, "users": {"ann"', "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "no users file"),
        (b'{"users": {}}', "no users file"),
        (b'{"version": true, "users": {}}', "no users file"),
        (b'{"version": 1, "users": []}', "no users file"),
        (b'{"version": 2, "users": {}}', "version 2, and this sparkstore knows 1"),
        (b'{"version": 1, "users": {}, "decoy_key": 1}', '"decoy_key" is damaged'),
        (b'{"version": 1, "users": {}, "decoy_key": "="}', '"decoy_key" is damaged'),
        (b'{"version": 1, "users": {"ann": {}}}', "user 'ann' is damaged"),
        (b'{"version": 1, "users": {"ann": []}}', "user 'ann' is damaged"),
        (b'{"version": 1, "users": {"ann": {"roles": "x", "secrets": {}}}}', "is damaged"),
        (b'{"version": 1, "users": {"ann": {"roles": [], "secrets": {"MD5": {}}}}}', "is damaged"),
        (b'{"version": 1, "users": {"a\\nb": {"roles": [], "secrets": {}}}}', "printable"),
        (b'{"version": 1, "users": {"*": {"roles": [], "secrets": {}}}}', "can be called"),
    ],
)
def test_a_damaged_or_newer_file_is_refused_in_one_line_and_stays(
    file: Path, content: bytes, message: str
) -> None:
    file.write_bytes(content)
    with pytest.raises(InvalidRequest, match=message) as refused:
        read_users(file)
    assert str(file) in str(refused.value)
    assert "\n" not in str(refused.value)
    with pytest.raises(InvalidRequest), changing_users(file) as users:
        users["bob"] = User("bob")
    assert file.read_bytes() == content


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("iterations", LEAST_ITERATIONS - 1),
        ("iterations", MOST_ITERATIONS + 1),
        ("iterations", "many"),
        ("iterations", True),
        ("salt", "AAAA"),
        ("salt", "not base64!"),
        ("stored_key", "AAAA"),
        ("server_key", None),
    ],
)
def test_a_secret_that_cannot_be_is_refused(file: Path, key: str, value: object) -> None:
    content = json.loads(file.read_text())
    content["users"]["ann"]["secrets"]["SCRAM-SHA-256"][key] = value
    file.write_text(json.dumps(content))
    with pytest.raises(InvalidRequest, match=r"user 'ann' is damaged .*: set its password again"):
        read_users(file)


def test_a_user_with_half_of_the_secrets_is_refused(file: Path) -> None:
    content = json.loads(file.read_text())
    del content["users"]["ann"]["secrets"]["SCRAM-SHA-512"]
    file.write_text(json.dumps(content))
    with pytest.raises(InvalidRequest, match="needs secrets for"):
        read_users(file)


def test_a_file_that_is_not_there_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"No such file.*sparkstore passwd"):
        read_users(tmp_path / "none")


def test_a_folder_is_no_users_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="users file"):
        read_users(tmp_path)


def test_a_change_is_seen_at_the_next_look(file: Path) -> None:
    watched = UsersFile(file)
    assert set(watched.users) == {"ann"}
    with changing_users(file) as users:
        users["bob"] = User("bob")
    assert set(watched.users) == {"ann", "bob"}
    with changing_users(file) as users:
        del users["ann"]
    assert set(watched.users) == {"bob"}


def test_a_change_that_cannot_be_used_is_told_once_and_changes_nothing(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    watched = UsersFile(file)
    file.write_text("{")
    assert set(watched.users) == set(watched.users) == {"ann"}
    assert len(caplog.records) == 1
    assert "the users are as they were" in caplog.text
    file.unlink()
    assert set(watched.users) == {"ann"}
    file.write_bytes(encoded(UsersFileContent({"bob": User("bob")})))
    file.chmod(0o600)
    assert set(watched.users) == {"bob"}


def test_the_decoy_key_is_made_once_and_kept(file: Path) -> None:
    old = UsersFile(file).decoy_key
    with changing_users(file) as users:
        users["bob"] = User("bob")
    assert UsersFile(file).decoy_key == old
    file.write_text('{"version": 1, "users": {}}')  # of an older version
    watched = UsersFile(file)
    made_up = watched.decoy_key
    assert len(made_up) == 32
    assert made_up not in {old, UsersFile(file).decoy_key}
    with changing_users(file) as users:
        users["bob"] = User("bob")
    assert watched.decoy_key == UsersFile(file).decoy_key != made_up


def test_two_who_change_the_file_at_a_time_lose_nothing(file: Path) -> None:
    def add(name: str) -> None:
        for number in range(20):
            with changing_users(file) as users:
                users[f"{name}{number}"] = User(f"{name}{number}")

    threads = [threading.Thread(target=add, args=(name,)) for name in "bc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read_users(file)) == 1 + 40


def test_a_link_to_the_file_stays_a_link(file: Path) -> None:
    link = file.with_name("link.json")
    link.symlink_to(file)
    with changing_users(link) as users:
        users["bob"] = User("bob")
    assert link.is_symlink()
    assert set(read_users(file)) == {"ann", "bob"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can")
def test_what_root_changes_stays_its_owners_and_a_broker_of_root_takes_only_roots(
    file: Path,
) -> None:
    os.chown(file, 1234, 2345)
    with changing_users(file) as users:
        users["bob"] = User("bob")
    found = file.stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (1234, 2345, 0o600)
    assert set(read_users(file)) == {"ann", "bob"}
    with pytest.raises(InvalidRequest, match="belongs to another user"):
        UsersFile(file)


def test_by_whichever_link_it_is_changed_the_lock_is_the_same(file: Path) -> None:
    link = file.parent / "elsewhere" / "link.json"
    link.parent.mkdir()
    link.symlink_to(file)
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with changing_users(link) as users:
            users["bob"] = User("bob")
            with pytest.raises(BlockingIOError):
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(folder)
    assert link.is_symlink()
    assert set(read_users(file)) == {"ann", "bob"}


def test_what_another_left_under_the_scratch_name_is_not_written_through(
    file: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.write_text("other")
    file.with_name("users.json.new").symlink_to(other)
    with changing_users(file) as users:
        users["bob"] = User("bob")
    assert other.read_text() == "other"
    assert set(read_users(file)) == {"ann", "bob"}


@pytest.mark.parametrize(
    "name", ["", "a\nb", "\x1b[2J", "*", "anonymous", "role:x", " a", "a " * 200]
)
def test_nobody_can_be_called_so(name: str) -> None:
    with pytest.raises(InvalidRequest):
        check_name(name)


# ---------------------------------------------------------------------------------- passwords


def test_a_password_is_its_users_and_nobody_elses() -> None:
    users = {"ann": user("ann", "secret"), "bob": user("bob", "other"), "eve": User("eve")}
    passwords = Passwords(lambda: users)
    for _ in range(2):  # the second time it may be remembered
        assert passwords.is_password_of("ann", "secret")
        assert passwords.is_password_of("bob", "other")
        assert not passwords.is_password_of("ann", "other")
        assert not passwords.is_password_of("bob", "secret")
        assert not passwords.is_password_of("eve", "secret")
        assert not passwords.is_password_of("nobody", "secret")


def test_a_password_that_was_changed_is_not_remembered() -> None:
    users = {"ann": user("ann", "old")}
    passwords = Passwords(lambda: users)
    assert passwords.is_password_of("ann", "old")
    users["ann"] = user("ann", "new")
    assert not passwords.is_password_of("ann", "old")
    assert passwords.is_password_of("ann", "new")
    del users["ann"]
    assert not passwords.is_password_of("ann", "new")


def test_text_is_prepared_as_scram_prepares_it() -> None:
    """RFC 4013: a soft hyphen is nothing, a Roman numeral is letters, NFKC."""
    users = {"ann": user("ann", "I\u00adX")}
    passwords = Passwords(lambda: users)
    assert passwords.is_password_of("ann", "IX")
    assert passwords.is_password_of("ann", "\u2168")


@pytest.mark.parametrize("password", ["", "x" * (MOST_PASSWORD_BYTES + 1), "\u00ad", "a\x07b"])
def test_no_password_is_like_that(password: str) -> None:
    with pytest.raises(InvalidRequest):
        secrets_of(password, QUICK)
    assert not Passwords(lambda: {"ann": user("ann", "x")}).is_password_of("ann", password)


# ------------------------------------------------------------------------------------ the command


def run(*arguments: object, stdin: bytes = b"", monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
    return main([str(each) for each in arguments])


def is_password(file: Path, name: str, password: str) -> bool:
    return Passwords(lambda: read_users(file)).is_password_of(name, password)


def test_a_user_is_added_changed_listed_and_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "users.json"
    add = ("ann", "--stdin", "--roles", "shop,audit")
    assert run(file, *add, stdin=b"the first\n", monkeypatch=monkeypatch) == 0
    assert is_password(file, "ann", "the first")
    assert run(file, "ann", "--stdin", stdin="die zwöte\r\n".encode(), monkeypatch=monkeypatch) == 0
    assert is_password(file, "ann", "die zwöte")
    assert not is_password(file, "ann", "the first")
    assert run(file, "host7", "--no-password", monkeypatch=monkeypatch) == 0
    assert run(file, "--list", monkeypatch=monkeypatch) == 0
    printed = capsys.readouterr()
    assert printed.err.splitlines() == [
        f"sparkstore passwd: {file}: user 'ann' added, with a password and audit,shop",
        f"sparkstore passwd: {file}: user 'ann' changed, with a password and audit,shop",
        f"sparkstore passwd: {file}: user 'host7' added, with no password and no roles",
    ]
    assert printed.out.splitlines() == [
        "ann\troles=audit,shop\tSCRAM-SHA-256,SCRAM-SHA-512",
        "host7\troles=\tcertificate",
    ]
    assert run(file, "ann", "--delete", monkeypatch=monkeypatch) == 0
    assert capsys.readouterr() == ("", f"sparkstore passwd: {file}: user 'ann' deleted\n")
    assert set(read_users(file)) == {"host7"}


@pytest.mark.parametrize("name", ["users.json", "there"])
@pytest.mark.parametrize("how", ["--stdin", "--no-password", "--delete"])
def test_swapped_arguments_make_no_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    how: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").write_text("a file")
    assert run("ann", name, how, stdin=b"long enough\n", monkeypatch=monkeypatch) == 2
    assert f"sparkstore passwd {name} ann" in capsys.readouterr().err
    assert [each.name for each in tmp_path.iterdir()] == ["there"]


def test_a_user_may_be_called_as_a_file_is(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    assert run(file, "users.json", "--no-password", monkeypatch=monkeypatch) == 0
    assert set(read_users(file)) == {"ann", "users.json"}


def test_a_password_from_before_may_be_shorter_than_a_new_one(file: Path) -> None:
    with changing_users(file) as users:
        users["bob"] = user("bob", "short")
    assert is_password(file, "bob", "short")


def test_the_prompt_asks_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = iter(["one of them", "another", "the same", "the same"])
    monkeypatch.setattr(getpass, "getpass", lambda _prompt: next(said))
    file = tmp_path / "users.json"
    assert main([str(file), "ann"]) == 2
    assert not file.exists()
    assert main([str(file), "ann"]) == 0
    assert is_password(file, "ann", "the same")


@pytest.mark.parametrize(
    ("arguments", "stdin", "says"),
    [
        (("ann", "--stdin"), b"", "1 to 512 bytes"),
        (("ann", "--stdin"), b"x" * 600, "1 to 512 bytes"),
        (("ann", "--stdin"), b"7 chars\n", "at least 8 characters"),
        (("ann", "--stdin"), "7\u00adchars".encode(), "at least 8 characters"),
        (("ann", "--stdin"), b"\xff\n", "not UTF-8"),
        (("anonymous", "--stdin"), b"x\n", "no user can be called"),
        (("ann", "--stdin", "--roles", "a,*"), b"x\n", "no role can be called"),
        (("bob", "--delete"), b"", "has no user 'bob'"),
        ((), b"", "say the user's name"),
    ],
)
def test_a_wrong_call_changes_nothing(
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    stdin: bytes,
    says: str,
) -> None:
    before = file.read_bytes()
    assert run(file, *arguments, stdin=stdin, monkeypatch=monkeypatch) == 2
    assert says in capsys.readouterr().err
    assert file.read_bytes() == before


def test_a_folder_that_is_not_there_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "none" / "users.json"
    assert run(file, "ann", "--stdin", stdin=b"long enough\n", monkeypatch=monkeypatch) == 2
    assert "No such file or directory" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_cannot_be_written_is_told(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file.parent.chmod(0o500)
    assert run(file, "bob", "--no-password", monkeypatch=monkeypatch) == 1
    assert "Permission denied" in capsys.readouterr().err
    file.parent.chmod(0o700)


def test_a_token_is_all_of_standard_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "users.json"
    assert run(file, "ci", "--token", "--roles", "monitor", monkeypatch=monkeypatch) == 0
    printed = capsys.readouterr()
    (token,) = printed.out.splitlines()
    assert user_of_token(read_users(file), token) == "ci"
    assert "user 'ci' added" in printed.err
    assert token not in printed.err


@pytest.mark.parametrize(
    ("role", "meant"),
    [
        ("moniter", "monitor"),
        ("Admin", "admin"),
        ("operators", "operator"),
        ("OPERATOR", "operator"),
    ],
)
def test_a_misspelt_role_of_the_http_port_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    role: str,
    meant: str,
) -> None:
    file = tmp_path / "users.json"
    words = (file, "ann", "--no-password", "--roles")
    assert run(*words, f"shop,{role}", monkeypatch=monkeypatch) == 2
    assert f"did you mean {meant!r}?" in capsys.readouterr().err
    assert not file.exists()
    assert run(*words, "shop,audit,operations,admin", monkeypatch=monkeypatch) == 0
