"""The file of the JSON store, and what happens when it cannot be written (the rest: contract)."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from broker_shim.errors import CorruptData, InvalidRequest, Locked, StoreError, Unavailable
from broker_shim.store.interface import Exchange, ExchangeBindingKey, MessageHeader, Queue
from broker_shim.store.json import file as json_file
from broker_shim.store.json.json_store import FORMAT, VERSION, JsonMessageStore, read_wiring
from tests.support.stores.stores import done


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file of a store with a queue, an exchange and a binding."""
    store = JsonMessageStore(tmp_path / "wiring.json")
    done(store.create, Queue("q", arguments={"n": 1}))
    done(store.create, Exchange("e 🦊", "topic"))
    done(store.bind, ExchangeBindingKey("e 🦊", "q", "a.#"), {})
    store.close()
    return tmp_path / "wiring.json"


def test_the_file_says_what_it_is_in_json_that_people_can_read(file: Path) -> None:
    content = json.loads(file.read_bytes())
    assert (content["format"], content["version"]) == (FORMAT, VERSION)
    definition = {"arguments": {"n": 1}, "durability": 2}
    assert content["queues"] == [{"name": "q", "definition": definition}]
    assert [item["exchange"] for item in content["bindings"]] == ["e 🦊"]


def test_the_first_change_makes_the_file(tmp_path: Path) -> None:
    store = JsonMessageStore(tmp_path / "wiring.json")
    done(store.flush)
    assert not (tmp_path / "wiring.json").exists()
    done(store.create, Queue("q"))
    assert (tmp_path / "wiring.json").exists()
    store.close()


def test_a_file_cut_short_at_any_byte_is_refused_and_left_as_it_is(file: Path) -> None:
    whole = file.read_bytes()
    for size in range(len(whole)):
        file.write_bytes(whole[:size])
        with pytest.raises(CorruptData, match=r"wiring\.json cannot be read"):
            read_wiring(file)
    with pytest.raises(CorruptData, match="restore it from a backup"):
        JsonMessageStore(file)
    assert file.read_bytes() == whole[:-1]


@pytest.mark.parametrize(
    "content",
    [b"\0" * 50, b"[]", b"{}", b"\xff", b'{"format": "other", "version": 1}', b"7", b"null"],
)
def test_a_file_that_is_not_ours_is_refused_and_left_as_it_is(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(CorruptData, match=r"wiring\.json cannot be read"):
        JsonMessageStore(file)
    assert file.read_bytes() == content


def test_a_file_from_a_newer_version_is_refused_and_left_as_it_is(file: Path) -> None:
    newer = json.dumps(
        {"format": FORMAT, "version": VERSION + 1, "queues": {"q": "as yet unknown"}}
    )
    file.write_text(newer)
    with pytest.raises(CorruptData, match="install a newer"):
        JsonMessageStore(file)
    assert file.read_text() == newer


def test_while_the_file_cannot_be_written_nothing_is_acknowledged_and_later_all_is(
    file: Path,
) -> None:
    store = JsonMessageStore(file)
    scratch = file.with_name(file.name + ".new")
    scratch.mkdir()  # the one way to make a write fail for root, too
    for _ in range(2):  # again: nothing changes, yet it is not on file
        with pytest.raises(Unavailable, match=r"cannot write .*wiring\.json"):
            done(store.create, Queue("late"))
    with pytest.raises(Unavailable):
        done(store.enqueue, store.message(MessageHeader(), b"x"), "late")
    with pytest.raises(InvalidRequest):
        done(store.create, Queue("late", arguments={"other": 1}))
    assert "late" not in file.read_text()
    scratch.rmdir()
    done(store.create, Queue("late"))
    store.close()
    again = JsonMessageStore(file)
    assert {queue.name for queue in again.recover().queues} == {"q", "late"}
    again.close()


def test_changes_that_wait_together_are_one_write(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, writes = JsonMessageStore(file), list[bytes]()
    monkeypatch.setattr(json_file, "replace_durably", lambda _path, data: writes.append(data))
    held, entered, errors = threading.Event(), threading.Event(), list[StoreError | None]()

    def hold(_error: StoreError | None) -> None:
        entered.set()
        held.wait(30)

    store.flush(hold)
    assert entered.wait(30)
    for number in range(100):
        store.create(Queue(f"n{number}"), errors.append)
    held.set()
    store.close()
    assert errors == [None] * 100
    assert len(writes) == 1
    assert len(json.loads(writes[0])["queues"]) == 101


def test_a_second_store_on_one_file_is_locked_out_until_the_first_closes(file: Path) -> None:
    first = JsonMessageStore(file)
    with pytest.raises(Locked, match=r"wiring\.json is in use"):
        JsonMessageStore(file)
    first.close()
    JsonMessageStore(file).close()


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="its folder must be there and writable"):
        JsonMessageStore(tmp_path / "none" / "wiring.json")
