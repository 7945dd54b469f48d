"""The file of the JSON link store (the rest: contract)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker_shim.errors import CorruptData, InvalidRequest, Locked, Unavailable
from broker_shim.links import Role
from broker_shim.store.json.json_link_store import JsonLinkStore, read_links
from tests.support.stores.links import receiver, sender, terms
from tests.support.stores.stores import done


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file of a store with two links."""
    store = JsonLinkStore(tmp_path / "links.json")
    done(store.attach, sender("news", "client"), terms(address="prices"))
    done(store.attach, receiver("out"), terms(Role.RECEIVER, address="orders"))
    store.close()
    return tmp_path / "links.json"


def test_the_file_is_laid_out_as_the_design_document_says(file: Path) -> None:
    content = json.loads(file.read_bytes())
    assert content.keys() == {"format", "version", "sendingLinks", "receivingLinks"}
    kept = {"durability": 1, "expiry_policy": "never"}
    whole = {"version": 1, **kept, "timeout_s": 0}
    news = {**whole, "source": {"address": "prices", **kept}, "target": {}}
    assert content["sendingLinks"] == {"client": {"news": news}}
    out = {**whole, "source": {}, "target": {"address": "orders", **kept}}
    assert content["receivingLinks"] == {"c": {"out": out}}


def test_a_file_cut_short_at_any_byte_is_refused_and_left_as_it_is(file: Path) -> None:
    whole = file.read_bytes()
    for size in range(len(whole)):
        file.write_bytes(whole[:size])
        with pytest.raises(CorruptData, match=r"links\.json cannot be read"):
            read_links(file)
    with pytest.raises(CorruptData, match="restore it from a backup"):
        JsonLinkStore(file)
    assert file.read_bytes() == whole[:-1]


def test_a_file_of_a_newer_version_is_refused_and_left_as_it_is(file: Path) -> None:
    newer = json.dumps(json.loads(file.read_bytes()) | {"version": 2}).encode()
    file.write_bytes(newer)
    with pytest.raises(CorruptData, match="has version 2, this sparkstore knows 1: install"):
        JsonLinkStore(file)
    assert file.read_bytes() == newer


@pytest.mark.parametrize(
    "change",
    [
        {"format": "other"},
        {"sendingLinks": []},
        {"sendingLinks": {"c": {"n": {"source": {}}}}},
        {"sendingLinks": {"c": {"n": {"version": 2, "source": None, "target": None}}}},
        *(
            {"sendingLinks": {"c": {"n": {"version": 1, "source": source, "target": None}}}}
            for source in (
                {"unknown": 1},
                {"durability": 3},
                {"expiry_policy": "soon"},
                {"timeout_s": "1"},
                {"capabilities": "topic"},
                {"filters": [{"name": "x"}]},
                {"address": 7},
            )
        ),
        {"receivingLinks": {"c": {"n": {"version": 1, "source": None, "target": {"filters": []}}}}},
    ],
)
def test_a_file_with_something_else_in_it_is_refused(file: Path, change: dict[str, object]) -> None:
    file.write_text(json.dumps(json.loads(file.read_bytes()) | change))
    with pytest.raises(CorruptData, match=r"links\.json cannot be read"):
        JsonLinkStore(file)


def test_the_same_terms_again_are_no_write(file: Path) -> None:
    store = JsonLinkStore(file)
    file.unlink()
    done(store.attach, sender("news", "client"), terms(address="prices"))
    done(store.detach, sender("news", "client"), closed=False)
    assert not file.exists()
    done(store.detach, sender("news", "client"), closed=True)
    assert read_links(file).keys() == {receiver("out")}
    store.close()


def test_a_file_that_cannot_be_written_completes_nothing_until_it_can(file: Path) -> None:
    store, scratch = JsonLinkStore(file), file.with_name("links.json.new")
    scratch.mkdir()
    with pytest.raises(Unavailable, match=r"cannot write .*links\.json"):
        done(store.attach, sender("late"), terms())
    with pytest.raises(Unavailable):
        done(store.attach, sender("late"), terms())
    scratch.rmdir()
    done(store.attach, sender("late"), terms())
    store.close()
    assert sender("late") in read_links(file)


def test_a_second_store_on_one_file_is_locked_out_until_the_first_closes(file: Path) -> None:
    first = JsonLinkStore(file)
    with pytest.raises(Locked, match=r"links\.json is in use"):
        JsonLinkStore(file)
    first.close()
    JsonLinkStore(file).close()


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="its folder must be there and writable"):
        JsonLinkStore(tmp_path / "none" / "links.json")
