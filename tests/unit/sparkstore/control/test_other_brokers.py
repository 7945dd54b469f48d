"""A root whose socket is answered by something else than a broker of this release and this root."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sparkstore.cli.command_line import main
from sparkstore.control.socket_address import SOCKET_NAME
from sparkstore.tables.root import open_or_create_root
from tests.support.stores.stores import TIMEOUT_S


def answer(status: str, content: dict[str, Any]) -> bytes:
    body = json.dumps(content).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


OLD = b'{"error": "InvalidRequest", "message": "a line of the control protocol is not JSON"}\n'
ABSENT = {"status": 404, "error": "there is nothing here: GET /api/v1/openapi.json lists it"}
CUT = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
HALF = json.dumps({"so_far": {"done": 5, "left": 0, "gone": 0, "full": 0}}).encode() + b"\n"
CREATE, PURGE = ["queue", "create", "ROOT", "q"], ["queue", "purge", "ROOT", "q"]
ANSWERS: dict[str, tuple[list[str], list[bytes], int, str]] = {
    "an older release": (CREATE, [OLD], 2, "is of an older release: use its sparkstore"),
    "a newer release": (CREATE, [b"", answer("404 Not Found", ABSENT)], 2, "of another release"),
    "another root": (
        CREATE, [answer("200 OK", {"root_id": "other"})], 2, "the socket is of root 'other'",
    ),
    "it goes away": (CREATE, [b""], 75, "the broker went away"),
    "it goes away in a purge": (
        PURGE, [b"", CUT + b"%x\r\n%b\r\n" % (len(HALF), HALF)], 75, "run it again",
    ),
    "no JSON": (CREATE, [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n<>"], 4, "no JSON"),
}  # fmt: skip
"""The command, what answers each of its requests, its exit code, and what its one line says.

Nothing for an answer stands for that of a broker of the root itself.
"""


def take_request(peer: socket.socket) -> None:
    """Read a request whole: what is left unread would reset the connection."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += peer.recv(1 << 16)
    head, _, body = received.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: (\d+)", head)
    while length is not None and len(body) < int(length[1]):
        body += peer.recv(1 << 16)


@contextmanager
def answering(root: Path, answers: list[bytes]) -> Iterator[None]:
    """Answer the requests of one client at the socket of a root, and hang up."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(root / SOCKET_NAME))
        listening.listen()
        listening.settimeout(TIMEOUT_S)

        def serve() -> None:
            peer, _ = listening.accept()
            with peer:
                for content in answers:
                    take_request(peer)
                    peer.sendall(content)

        thread = threading.Thread(target=serve)
        thread.start()
        yield
        thread.join(TIMEOUT_S)


@pytest.mark.parametrize("case", ANSWERS.values(), ids=ANSWERS)
def test_who_answers_otherwise_is_told_of_in_one_line(
    case: tuple[list[str], list[bytes], int, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words, answers, code, text = case
    root = open_or_create_root(tmp_path / "root")
    itself = answer("200 OK", {"root_id": root.identity.root_id})
    with answering(root.path, [content or itself for content in answers]):
        assert main([word.replace("ROOT", str(root.path)) for word in words]) == code
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert text in shown.err


TARGETS = [
    ("queues ROOT --user ann", "--user is for a broker by its HTTP port: give --url, too"),
    ("verify --url http://127.0.0.1:1", "verify has no --url: it reads a root, so run it where"),
    ("queue purge q --url http://x --config c.toml", "--config needs ROOT: leave it out with"),
    ("sql SELECT --url http://x --engine spark", "--engine needs ROOT"),
    ("move q --to r --url http://x --where true", "--where needs ROOT"),
    ("purge q --url http://x --older-than 1d", "--older-than needs ROOT"),
    ("check --url http://x --lag 7", "--lag needs ROOT"),
]


@pytest.mark.parametrize(("line", "text"), TARGETS)
def test_an_option_that_the_target_has_no_use_for_is_refused(
    line: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.replace("ROOT", str(tmp_path)).split()) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert text in shown.err


def test_the_help_of_a_command_has_the_login_once(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["queues"], ["queue", "show"], ["history"], ["definitions", "import"]):
        with pytest.raises(SystemExit):
            main([*words, "--help"])
        shown = capsys.readouterr().out
        assert shown.count("  --url URL") == shown.count("  --token-file FILE") == 1
