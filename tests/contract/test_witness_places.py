"""What `WitnessPlace` promises, asked of every place that a witness may have."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sparkstore.witness.holder import Holder, packed, unpacked
from sparkstore.witness.place import WitnessPlace, witness_at
from tests.support.objects import lease_server, s3_server

RACERS, ROUNDS = 6, 10


@pytest.fixture(params=["folder", "bucket", "kubernetes"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[WitnessPlace]:
    """A place that has no object yet."""
    if request.param == "folder":
        yield witness_at(str(tmp_path))
    elif request.param == "bucket":
        with s3_server.served(monkeypatch):
            yield witness_at("s3://lake/witness/orders")
    else:
        with lease_server.served(tmp_path, monkeypatch):
            yield witness_at("kubernetes:queues/orders")


def text(number: int, writer: str = "") -> bytes:
    return packed(Holder("a" * 32, 1, writer, 10.0, renewal=number))


def tag_of(place: WitnessPlace) -> str:
    stored = place.read()
    assert stored is not None
    return stored.tag


def content_of(place: WitnessPlace) -> bytes:
    stored = place.read()
    assert stored is not None
    return stored.content


def test_the_first_object_is_written_once(place: WitnessPlace) -> None:
    assert place.read() is None
    place.delete()  # nothing is there
    assert place.put_if_absent(text(1))
    assert not place.put_if_absent(text(2))
    assert content_of(place) == text(1)
    assert tag_of(place) == tag_of(place)


def test_an_object_is_replaced_by_its_own_tag_and_by_no_older_one(
    place: WitnessPlace,
) -> None:
    place.put_if_absent(text(1))
    first = tag_of(place)
    assert place.replace_if_unchanged(text(2), first)
    assert not place.replace_if_unchanged(text(3), first)
    second = tag_of(place)
    assert place.replace_if_unchanged(text(4), second)
    assert not place.replace_if_unchanged(text(5), first)
    assert not place.replace_if_unchanged(text(5), second)
    assert content_of(place) == text(4)


def test_an_object_that_is_gone_is_not_replaced(place: WitnessPlace) -> None:
    place.put_if_absent(text(1))
    tag = tag_of(place)
    place.delete()
    assert place.read() is None
    assert not place.replace_if_unchanged(text(2), tag)
    assert place.read() is None
    assert place.put_if_absent(text(3))
    assert not place.replace_if_unchanged(text(4), tag)


def test_of_many_who_write_the_first_object_one_wins(place: WitnessPlace) -> None:
    with ThreadPoolExecutor(RACERS) as racers:
        results = list(racers.map(lambda n: place.put_if_absent(text(n)), range(RACERS)))
    assert sum(results) == 1
    assert content_of(place) == text(results.index(True))


def test_of_many_who_replace_an_object_one_wins_every_time(place: WitnessPlace) -> None:
    """The object counts the replacements: one that two believed to have made would be missing."""
    place.put_if_absent(text(0))

    def count(racer: int) -> int:
        won = 0
        for _ in range(ROUNDS):
            stored = place.read()
            assert stored is not None
            number = unpacked("", stored.content).renewal + 1
            # Of its own name, since an equal content counts as its own.
            won += place.replace_if_unchanged(text(number, str(racer)), stored.tag)
        return won

    with ThreadPoolExecutor(RACERS) as racers:
        won = sum(racers.map(count, range(RACERS)))
    assert unpacked("", content_of(place)).renewal == won >= ROUNDS
