"""Secrets are one line of a file, and no message repeats them."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_shim.service.socket import read_token
from sparkstore.cli.command_line import main
from sparkstore.errors import InvalidRequest
from sparkstore.secret_file import MOST_SECRET_BYTES, PASSWORD_VARIABLE, TOKEN_VARIABLE, read_secret

SECRET = "sst_Geheimnis0123456789"
URL = "http://127.0.0.1:1"
"""Nobody listens there: what is refused before that is refused by what the file has."""
WRONG = {
    "two lines": f"users.json: user 'ci' added\n{SECRET}\n".encode(),
    "an old Mac's lines": f"{SECRET}\r{SECRET}".encode(),
    "not UTF-8": SECRET.encode() + b"\xff",
    "too long": SECRET.encode() * MOST_SECRET_BYTES,
}


@pytest.mark.parametrize("content", WRONG.values(), ids=WRONG.keys())
@pytest.mark.parametrize(
    "options",
    [("--token-file", "FILE"), ("--user", "ann", "--password-file", "FILE")],
    ids=["token", "password"],
)
def test_a_command_refuses_a_file_in_one_line_without_what_it_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, options: tuple[str, ...]
) -> None:
    (path := tmp_path / "secret").write_bytes(content)
    words = [str(path) if word == "FILE" else word for word in options]
    assert main(["queues", "--url", URL, *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert str(path) in line
    assert "Geheimnis" not in line


@pytest.mark.parametrize("token", [f"{SECRET}\nx", f"{SECRET} ü", f"{SECRET}\x07", ""])
def test_a_token_that_no_header_can_have_is_refused_and_not_shown(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    token: str,
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, token)
    assert main(["queues", "--url", URL]) == 2
    assert (first := capsys.readouterr().err).startswith(f"sparkstore: {TOKEN_VARIABLE} has no")
    (path := tmp_path / "token").write_text(token)
    assert main(["queues", "--url", URL, "--token-file", str(path)]) == 2
    assert "Geheimnis" not in first + capsys.readouterr().err


def test_a_good_token_or_password_is_asked_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (path := tmp_path / "secret").write_text(f"{SECRET}\r\n")
    assert main(["queues", "--url", URL, "--token-file", str(path)]) == 75
    assert main(["queues", "--url", URL, "--user", "ann", "--password-file", str(path)]) == 75
    monkeypatch.setenv(PASSWORD_VARIABLE, "zwei\nZeilen ü")
    assert main(["queues", "--url", URL, "--user", "ann"]) == 75
    assert "Geheimnis" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "url", [f"ftp://ann:{SECRET}@host", f"https://ann:{SECRET}@host", f"http://a:{SECRET}@h:x"]
)
def test_a_password_in_a_url_is_not_repeated(capsys: pytest.CaptureFixture[str], url: str) -> None:
    assert main(["queues", "--url", url]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "Geheimnis" not in line


def test_a_path_that_is_none_is_told(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none", Path("a\0b")):
        with pytest.raises(InvalidRequest, match=r"^password file "):
            read_secret(path, "password")


def test_the_token_of_a_service_is_one_line_too(tmp_path: Path) -> None:
    (path := tmp_path / "token").write_text(f"{SECRET}\n{SECRET}\n")
    path.chmod(0o600)
    with pytest.raises(InvalidRequest, match="more than one line") as refused:
        read_token(path)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    "words",
    [
        ("queues", "--url", URL, "--token", SECRET),
        ("queues", "--url", URL, f"--token={SECRET}"),
        ("queues", "--url", URL, "--user", "ann", "--password", SECRET),
        ("serve", "root", "--store-listen", "127.0.0.1:0", "--token", SECRET),
        ("passwd", "users.json", "ann", SECRET),
        ("passwd", "users.json", "ann", f"--password={SECRET}"),
        ("compact", "root", "--conf", f"fs.s3a.secret.key={SECRET}"),
        ("compact", "root", "--conf", SECRET),
    ],
)
def test_a_secret_on_a_command_line_is_refused_and_not_repeated(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    """`--token` is no short form of `--token-file`, which would name the secret as a file."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    printed = capsys.readouterr()
    assert "error: " in printed.err
    assert "Geheimnis" not in printed.out + printed.err
