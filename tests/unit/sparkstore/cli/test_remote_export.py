"""What a command that asks a broker's URL does with an answer that does not come whole."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from sparkstore.cli.command_line import main
from tests.support.stores.stores import TIMEOUT_S

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n"
HALVES = {
    "between chunks": _HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\n{}\n\r\n",
    "in a line, by a proxy that tells no length": _HEAD + b'Connection: close\r\n\r\n{}\n{"a',
}


@pytest.mark.parametrize("half", HALVES.values(), ids=HALVES)
def test_an_export_that_is_cut_off_makes_no_file(
    half: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer_half() -> None:
            peer, _ = listening.accept()
            with peer:
                peer.recv(1 << 16)
                peer.sendall(half)
                peer.shutdown(socket.SHUT_WR)
                while peer.recv(1 << 16):  # an end with unread bytes would be a reset
                    pass

        peer = threading.Thread(target=answer_half)
        peer.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        assert main(["export", "q", "--url", url, "--output", str(tmp_path / "q.jsonl")]) == 75
        peer.join(TIMEOUT_S)
    assert "does not answer: IncompleteRead" in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == []
