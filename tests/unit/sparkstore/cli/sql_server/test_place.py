"""A server is reached by its user alone, and never asked by another version."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import sparkstore
from sparkstore.cli.sql_server import client
from sparkstore.cli.sql_server.exchange import Question
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
def test_a_socket_that_a_killed_server_left_is_not_stopped() -> None:
    found().socket.touch()
    assert client.stop_servers() == 0
