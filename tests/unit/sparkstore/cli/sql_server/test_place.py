"""A server is reached by its user alone, and never asked by another version."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import sparkstore
from sparkstore.cli.sql_server import client
from sparkstore.cli.sql_server.exchange import Question, receive
from sparkstore.cli.sql_server.place import ServerPlace, server_place, servers_folder
from tests.support.stores.services import short_folder

QUESTION = Question("/nowhere", "SELECT 1", 0, None, as_json=False)


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with short_folder() as folder:
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder / "sparkstore"


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


def test_a_path_too_long_for_a_socket_has_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ("long" * 30)))
    assert servers_folder() is not None
    assert server_place("little") is None


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
