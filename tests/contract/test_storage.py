"""What `Storage` promises, asked of every implementation."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sparkstore.storage.local import LocalStorage
from sparkstore.storage.objects import ObjectStorage
from sparkstore.storage.storage import Storage
from tests.support.objects import s3_server, versitygw

RACERS = 8
ROUNDS = 20


@pytest.fixture(
    params=[
        "local",
        "bucket",
        pytest.param("judge", marks=(pytest.mark.thorough, pytest.mark.slow)),
    ]
)
def storage(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Storage]:
    """An empty place: a folder, a bucket of the test's own server, a bucket of versitygw."""
    if request.param == "local":
        yield LocalStorage(tmp_path / "place")
    elif request.param == "bucket":
        with s3_server.served(monkeypatch):
            yield ObjectStorage("s3://lake/some/queues")
    else:
        with versitygw.served(tmp_path / "buckets", monkeypatch):
            yield ObjectStorage("s3://lake/some/queues")


def content_of(storage: Storage, name: str) -> bytes | None:
    found = storage.read(name)
    return None if found is None else found.content


def names_in(storage: Storage, under: str = "") -> set[str]:
    return {file.name for file in storage.files(under)}


def test_nothing_is_read_or_listed_where_nothing_is(storage: Storage) -> None:
    assert storage.read("root.json") is None
    assert names_in(storage, "journal/_delta_log") == set()
    storage.delete("root.json")


def test_what_is_there_is_not_put_again(storage: Storage) -> None:
    assert storage.put_if_absent("journal/_delta_log/0.json", b"one")
    assert not storage.put_if_absent("journal/_delta_log/0.json", b"two")
    assert content_of(storage, "journal/_delta_log/0.json") == b"one"


def test_who_lost_the_answer_and_puts_again_has_put_it(storage: Storage) -> None:
    assert storage.put_if_absent("a", b"one")
    assert storage.put_if_absent("a", b"one")


def test_only_what_was_read_is_replaced(storage: Storage) -> None:
    storage.put_if_absent("a", b"one")
    found = storage.read("a")
    assert found is not None
    assert storage.replace_if_unchanged("a", b"two", found.tag)
    assert not storage.replace_if_unchanged("a", b"three", found.tag)
    assert content_of(storage, "a") == b"two"


def test_who_lost_the_answer_and_replaces_again_has_replaced_it(storage: Storage) -> None:
    storage.put_if_absent("a", b"one")
    found = storage.read("a")
    assert found is not None
    assert storage.replace_if_unchanged("a", b"two", found.tag)
    assert storage.replace_if_unchanged("a", b"two", found.tag)


def test_of_those_who_put_at_once_one_wins(storage: Storage) -> None:
    with ThreadPoolExecutor(RACERS) as racers:
        for turn in range(ROUNDS):
            contents = [b"%d" % racer for racer in range(RACERS)]
            won = [
                *racers.map(lambda each, at=turn: storage.put_if_absent(f"{at}", each), contents)
            ]
            assert sum(won) == 1
            assert content_of(storage, f"{turn}") == contents[won.index(True)]


def test_of_those_who_replace_at_once_one_wins(storage: Storage) -> None:
    storage.put_if_absent("a", b"first")
    with ThreadPoolExecutor(RACERS) as racers:
        for turn in range(ROUNDS):
            found = storage.read("a")
            assert found is not None
            contents = [b"%d %d" % (turn, racer) for racer in range(RACERS)]
            names, tags = ["a"] * RACERS, [found.tag] * RACERS
            won = [*racers.map(storage.replace_if_unchanged, names, contents, tags)]
            assert sum(won) == 1
            assert content_of(storage, "a") == contents[won.index(True)]


def test_a_file_goes_up_and_comes_down_with_every_byte(storage: Storage, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "below" / "folders" / "there"
    here.write_bytes(bytes(range(256)) * 50_000)
    storage.upload("history/segment=1/part-1.parquet", here)
    storage.upload("history/segment=1/part-1.parquet", here)
    storage.download("history/segment=1/part-1.parquet", there)
    assert there.read_bytes() == here.read_bytes()
    assert [*storage.files("history")] == [
        ("history/segment=1/part-1.parquet", here.stat().st_size)
    ]


def test_what_is_not_there_does_not_come_down(storage: Storage, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        storage.download("history/nothing", tmp_path / "there")
    assert [*tmp_path.glob("there*")] == []


def test_names_are_taken_literally(storage: Storage) -> None:
    strange = {"segment=1/a b", "segment=1/%20", "segment=1/a+b&c=d"}
    for name in strange:
        assert storage.put_if_absent(name, name.encode())
    assert names_in(storage) == strange
    assert {content_of(storage, name) for name in strange} == {name.encode() for name in strange}


def test_a_listing_is_of_one_folder_and_not_of_its_namesakes(storage: Storage) -> None:
    for name in ("job/a", "job/b/c", "jobs/d", "job.json"):
        storage.put_if_absent(name, b".")
    assert names_in(storage, "job") == {"job/a", "job/b/c"}


def test_what_was_deleted_is_gone_and_may_be_put_again(storage: Storage) -> None:
    storage.put_if_absent("a", b"one")
    storage.delete("a")
    storage.delete("a")
    assert storage.read("a") is None
    assert storage.put_if_absent("a", b"two")
