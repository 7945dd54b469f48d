"""A server is reached by its user alone, and never asked by another version."""

from __future__ import annotations

import fcntl
import os
import resource
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Thread

import pytest

import sparkstore
from sparkstore.cli.query_result import PrintedAnswer
from sparkstore.cli.sql_server import client, server
from sparkstore.cli.sql_server.exchange import BEAT, Question, as_message, receive, send
from sparkstore.cli.sql_server.place import ServerPlace, server_place, servers_folder
from sparkstore.errors import InvalidRequest, Unavailable
from tests.support.stores.services import short_folder

QUESTION = Question("/nowhere", "SELECT 1", 0, None, as_json=False)


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with short_folder() as folder:
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder / "sparkstore"


def numbered_above_1024(file: socket.socket) -> int:
    """A file of the same socket with a number that `select.select` does not take."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    try:
        return fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 2048)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def found(effort: str = "little") -> ServerPlace:
    place = server_place(effort)
    assert place is not None
    return place


def test_the_folder_is_made_for_its_user_alone(cache: Path) -> None:
    assert servers_folder() == cache / "sql"
    assert (cache / "sql").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o707])
def test_a_folder_that_others_may_enter_has_no_server(cache: Path, mode: int) -> None:
    (cache / "sql").mkdir(parents=True)
    (cache / "sql").chmod(mode)
    assert server_place("little") is None
    assert client.ask("little", QUESTION) is None


def test_a_folder_that_is_a_link_has_no_server(cache: Path, tmp_path: Path) -> None:
    cache.mkdir()
    (tmp_path / "other").mkdir(mode=0o700)
    (cache / "sql").symlink_to(tmp_path / "other")
    assert server_place("little") is None


@pytest.mark.usefixtures("cache")
def test_another_version_effort_or_java_has_another_server(monkeypatch: pytest.MonkeyPatch) -> None:
    places = [found(), found("full")]
    monkeypatch.setenv("JAVA_HOME", "/another/java")
    places.append(found())
    monkeypatch.setattr(sparkstore, "__version__", "99.0")
    places.append(found())
    assert len({place.socket for place in places}) == 4


def test_a_path_too_long_for_a_socket_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ("long" * 30)))
    assert servers_folder() is not None
    why = "is longer than the 107 bytes of a socket's path: set XDG_CACHE_HOME to a shorter folder"
    with pytest.raises(InvalidRequest, match=why):
        server_place("little")
    assert client.ask("little", QUESTION) is None
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.usefixtures("cache")
def test_another_engine_or_java_on_the_path_or_code_that_was_edited_has_another_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [found()]
    assert found() == places[0]
    (tmp_path / "java").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    places.append(found())
    monkeypatch.setattr("importlib.metadata.version", lambda _name: "99.0")
    places.append(found())
    package = tmp_path / "sparkstore"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.setattr(sparkstore, "__file__", str(package / "__init__.py"))
    places.append(found())
    os.utime(package / "__init__.py", (1, 1))
    places.append(found())
    assert len({place.socket for place in places}) == 5


@pytest.mark.usefixtures("cache")
def test_a_socket_that_a_killed_server_left_is_not_stopped() -> None:
    found().socket.touch()
    assert client.stop_servers() == 0


@pytest.mark.usefixtures("cache")
def test_a_server_that_ends_before_it_answers_is_told_of(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor(1) as pool:
        listener.bind(str(found().socket))
        listener.listen()
        waits = pool.submit(client.ask, "little", QUESTION)
        peer, _ = listener.accept()
        with peer:
            receive(peer)
        assert waits.result() is None
    assert "ended before it answered" in capsys.readouterr().err


@pytest.mark.usefixtures("cache")
def test_a_server_that_says_that_it_is_alive_is_waited_for_and_a_silent_one_is_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor(1) as pool:
        listener.bind(str(found().socket))
        listener.listen()
        waits = pool.submit(client.ask, "little", QUESTION)
        peer, _ = listener.accept()
        with peer:
            for message in (BEAT, BEAT, as_message(PrintedAnswer(["1"], is_cut=False))):
                send(peer, message)
            assert waits.result() == PrintedAnswer(["1"], is_cut=False)
        monkeypatch.setattr(client, "SILENT_S", 0.1)
        assert client.ask("little", QUESTION) is None  # nobody accepts
    assert f"says nothing, Spark starts here: kill -9 {os.getpid()}" in capsys.readouterr().err


@pytest.mark.usefixtures("cache")
def test_a_server_answers_no_more_at_once_than_it_has_threads() -> None:
    """Spark is not there yet, so everybody waits; who hangs up then has no question any more."""
    with socket.socket(socket.AF_UNIX) as first, ExitStack() as peers:
        listener = peers.enter_context(socket.socket(fileno=numbered_above_1024(first)))
        listener.bind(str(found().socket))
        listener.listen()
        running = Thread(target=server.SqlServer(listener, None).run, daemon=True)
        running.start()
        for _ in range(server.AT_ONCE + server.IN_LINE):
            peer = peers.enter_context(socket.socket(socket.AF_UNIX))
            peer.connect(str(found().socket))
            send(peer, QUESTION._asdict())
        assert receive(peer) == BEAT
        with pytest.raises(Unavailable, match="has 64 questions already: ask again later"):
            client.ask("little", QUESTION)
