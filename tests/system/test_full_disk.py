"""A disk that runs full: senders wait first, what takes messages away goes on, nothing is lost."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from broker_shim.completion import Completion
from broker_shim.errors import Full
from broker_shim.serve.metric_families import log_families
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import MessageHeader, NewMessageRun, Queue
from sparkstore.config import StoreConfig
from sparkstore.control.client import connect
from sparkstore.operations.administration import AdminAction, Order
from sparkstore.operations.bulk import Action, Answer, MessageDraft, Request
from sparkstore.storage.disk_room import RESERVE, make_room
from tests.support.roots.logs import until
from tests.support.stores.controls import ServedRoot
from tests.support.stores.stores import done

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system"),
]

CONFIG = StoreConfig(commit_interval_ms=20, wal_file_bytes=4 << 20, max_wal_files=6)
DURABLE = MessageHeader("raw", b"h")
BODY_BYTES = 100_000


def mounted(folder: Path, size: str) -> bool:
    folder.mkdir()
    return not os.system(f"mount -t tmpfs -o size={size} tmpfs {folder} 2>/dev/null")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 128 MB: below 13 MB free senders wait, and the reserve has 6.7 MB."""
    folder = tmp_path / "disk"
    if not mounted(folder, "128m"):
        pytest.skip("no mount here")
    yield folder
    os.system(f"umount -l {folder}")


def put(store: DeltaMessageStore, header: MessageHeader = DURABLE) -> int:
    message = store.message(header, os.urandom(BODY_BYTES))
    done(store.enqueue, message, "q")
    return message.message_id


def put_until_held_back(store: DeltaMessageStore) -> tuple[list[int], str]:
    ids: list[int] = []
    while len(ids) < 5000:
        try:
            ids.append(put(store))
        except Full as refusal:
            if store.room.held_back:
                return ids, str(refusal)
            store.catch_up()  # the log was full for a moment: this machine is slow
    raise AssertionError("never held back")


def fill(disk: Path) -> Path:
    """Somebody else takes all that is left."""
    ballast = disk / "ballast"
    with suppress(OSError), ballast.open("ab") as file:
        while True:
            file.write(bytes(1 << 20))
            file.flush()
    with suppress(OSError), ballast.open("ab", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return ballast


def leave(disk: Path, byte_count: int) -> Path:
    """Somebody else takes all but so many bytes."""
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(free(disk) - byte_count))
    return ballast


def free(disk: Path) -> int:
    told = os.statvfs(disk)
    return told.f_bavail * told.f_frsize


def ids_on(store: DeltaMessageStore, queue: str = "q") -> list[int]:
    return [*store.recover().entries[queue]]


def test_senders_wait_before_the_disk_is_full_and_consumers_go_on(disk: Path) -> None:
    with closing(DeltaMessageStore(disk / "root", CONFIG)) as store:
        done(store.create, Queue("q"))
        assert (disk / "root" / RESERVE).stat().st_size == 134217728 // 20
        ids, refusal = put_until_held_back(store)
        assert "new messages wait until there is room" in refusal
        assert free(disk) > 1 << 20
        refused = Completion()
        new = NewMessageRun((DURABLE,), (b"x",), "q")
        store.enqueue_new(new, lambda outcomes: refused.finish(outcomes[0]))
        with pytest.raises(Full, match="new messages wait"):
            refused.complete()
        with pytest.raises(Full, match="new messages wait"):
            store.content(store.message(DURABLE)).add(b"x", lambda _error: None)
        volatile = put(store, DURABLE._replace(durable=False))
        done(store.dequeue, ids[0], "q", None)
        assert ids_on(store) == [*ids[1:], volatile]
        found = {
            (family.name, sample.labels.get("folder")): sample.value
            for family in log_families(store)
            for sample in family.samples
        }
        assert found["sparkstore_log_held_back", None] == 1
        assert 0 < found["sparkstore_log_free_bytes", str(disk / "root")] <= 134217728 // 10


def test_while_senders_wait_a_broker_starts_and_its_orders_are_done(disk: Path) -> None:
    with closing(DeltaMessageStore(disk / "root", CONFIG)) as store:
        done(store.create, Queue("q"))
        ids = [put(store) for _ in range(20)]
    leave(disk, 8 << 20)
    there = ServedRoot(disk / "root", config=CONFIG)
    try:
        control = connect(there.store.root)
        assert control is not None
        with closing(control):
            assert control.order(Order(AdminAction.CREATE_QUEUE, "late"))["changed"]
            moved = control.run(Request(Action.MOVE, "q", tuple(ids[:10]), "late"))
            assert moved == Answer(done=10)
            with pytest.raises(Full, match="new messages wait"):
                control.put("q", [MessageDraft(DURABLE, b"new")])
            assert control.purge("late", lambda _so_far: None) == Answer(done=10)
        assert ids_on(there.store) == ids[10:]
    finally:
        there.stop()


def test_on_a_disk_that_is_full_up_all_goes_on_but_new_messages_also_after_a_restart(
    disk: Path,
) -> None:
    store = DeltaMessageStore(disk / "root", CONFIG)
    done(store.create, Queue("q"))
    ids = [put(store) for _ in range(100)]
    ballast = fill(disk)
    assert free(disk) == 0
    for message_id in ids[:40]:
        done(store.dequeue, message_id, "q", None)
    done(store.create, Queue("late"))
    store.catch_up()
    assert not (disk / "root" / RESERVE).exists()
    with pytest.raises(Full, match="new messages wait"):
        put(store)
    kept = ids_on(store)
    assert kept == ids[40:]
    store.close()

    store = DeltaMessageStore(disk / "root", CONFIG)
    assert ids_on(store) == kept
    for message_id in kept[:30]:
        assert len(store.load(message_id).body) == BODY_BYTES
        done(store.dequeue, message_id, "q", None)
    store.catch_up()
    ballast.unlink()
    until(lambda: not store.room.held_back)
    put(store)
    until((disk / "root" / RESERVE).exists)
    assert ids_on(store)[:30] == kept[30:]
    store.close()


def test_a_store_that_was_stopped_starts_on_a_disk_that_is_full_up(disk: Path) -> None:
    store = DeltaMessageStore(disk / "root", CONFIG)
    done(store.create, Queue("q"))
    ids = [put(store) for _ in range(20)]
    store.close()
    fill(disk)
    assert free(disk) == 0
    with closing(DeltaMessageStore(disk / "root", CONFIG)) as store:
        assert ids_on(store) == ids
        with pytest.raises(Full, match="new messages wait"):
            put(store)
        for message_id in ids:
            assert len(store.load(message_id).body) == BODY_BYTES
            done(store.dequeue, message_id, "q", None)
        store.catch_up()


def test_a_job_gets_the_room_of_the_reserve(disk: Path) -> None:
    store = DeltaMessageStore(disk / "root", CONFIG)
    done(store.create, Queue("q"))
    store.close()
    make_room(disk / "root")
    assert (disk / "root" / RESERVE).exists()
    fill(disk)
    make_room(disk / "root")
    assert free(disk) == 134217728 // 20 // 4096 * 4096 + 4096


def test_the_disk_of_the_log_alone_holds_senders_back_too(disk: Path, tmp_path: Path) -> None:
    wal = disk / "wal"
    config = replace(CONFIG, wal_dir=str(wal))
    with closing(DeltaMessageStore(tmp_path / "root", config)) as store:
        done(store.create, Queue("q"))
        put(store)
        ballast = leave(disk, 8 << 20)
        until(lambda: store.room.held_back)
        with pytest.raises(Full, match=f"the disk of {wal}"):
            put(store)
        ballast.unlink()
        until(lambda: not store.room.held_back)
        put(store)


def test_the_log_written_beforehand_takes_no_room_that_senders_would_wait_for(disk: Path) -> None:
    config = replace(CONFIG, wal_file_bytes=32 << 20)
    with closing(DeltaMessageStore(disk / "root", config)) as store:
        done(store.create, Queue("q"))
    leave(disk, 40 << 20)
    with closing(DeltaMessageStore(disk / "root", config)) as store:
        put(store)
        store.catch_up()
        assert free(disk) > 134217728 // 10
        # One may be about to be written.
        sizes = [path.stat().st_size for path in (disk / "root" / "wal").glob("*.wal")]
        assert max(sizes) == 1 << 20
