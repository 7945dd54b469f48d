"""Content is the same bytes from memory, from the write-ahead log and from the journal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

import pytest

from broker_shim.durability import TerminusDurability
from broker_shim.errors import InvalidRequest
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import MessageHeader, Queue, StoredMessage
from broker_shim.store.reads import Loaded
from sparkstore.core.records import content_staged
from sparkstore.core.state_machine.call_values import RecordStep
from tests.support.stores.stores import DELTA_CONFIG, TIMEOUT_S, done

HEADER = MessageHeader(
    "amqp-1.0", b"\x00p\xffh", priority=7, subject="späť", properties=(("a", "1"),)
)
BODIES = [b"", b"short", bytes(range(256)) * 300]
COLD = replace(DELTA_CONFIG, cache_bytes=0, commit_interval_ms=60_000)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DeltaMessageStore]:
    """A store that keeps no content in memory, and commits to Delta only when flushed."""
    opened = DeltaMessageStore(tmp_path / "root", COLD)
    for name in ("q", "other"):
        done(opened.create, Queue(name))
    yield opened
    opened.close()


def fill(store: DeltaMessageStore) -> list[tuple[StoredMessage, bytes]]:
    """Messages whole and in pieces, on one queue and on two."""
    filled = []
    for body in BODIES:
        whole = store.message(HEADER, body)
        pieces = [body[:100], body[100:]]
        staged = done(store.stage, store.message(HEADER), pieces)
        for message in (whole, staged):
            done(store.enqueue, message, "q")
            done(store.enqueue, message, "other")
            filled.append((message, body))
    return filled


def check(store: DeltaMessageStore, filled: list[tuple[StoredMessage, bytes]]) -> None:
    for message, body in filled:
        loaded = store.load(message.message_id)
        assert (loaded.message_id, loaded.header, loaded.body) == (
            message.message_id,
            message.header,
            body,
        )
        for offset in (0, 99, 100, 101, len(body)):
            for length in (0, 1, 2, len(body)):
                found = store.read(message.message_id, offset, length)
                assert found == body[offset : offset + length], (offset, length)


def test_before_and_after_the_delta_commit(store: DeltaMessageStore) -> None:
    filled = fill(store)
    check(store, filled)
    done(store.flush)
    check(store, filled)


def test_after_a_restart_and_after_it_left_the_queue_that_brought_it(
    store: DeltaMessageStore, tmp_path: Path
) -> None:
    filled = fill(store)
    for message, _ in filled:
        done(store.dequeue, message.message_id, "q", None)
    store.close()
    again = DeltaMessageStore(tmp_path / "root", COLD)
    check(again, filled)
    again.close()


def check_reads(store: DeltaMessageStore, filled: list[tuple[StoredMessage, bytes]]) -> None:
    """Parts, headers and loads ahead say what was filled, in any order."""
    numbers = [message.message_id for message, _ in filled]
    assert store.headers(numbers) == [message.header for message, _ in filled]
    told: SimpleQueue[tuple[int, Loaded]] = SimpleQueue()
    store.prefetch([*reversed(numbers)], lambda *loaded: told.put(loaded))
    for message, body in reversed(filled):
        whole = message._replace(body=body, is_staged=False)
        assert told.get(timeout=TIMEOUT_S) == (message.message_id, whole)
        for offset, length in ((0, 100), (90, 20), (len(body) - 3, 9), (len(body), 1)):
            start = max(0, offset)
            assert store.read(message.message_id, start, length) == body[start:][:length]


def test_parts_and_headers_before_and_after_the_delta_commit_and_a_restart(
    store: DeltaMessageStore, tmp_path: Path
) -> None:
    filled = fill(store)
    check_reads(store, filled)
    done(store.flush)
    check_reads(store, filled)
    store.close()
    again = DeltaMessageStore(tmp_path / "root", COLD)
    check_reads(again, filled)
    again.close()


def test_while_it_is_on_a_transient_queue_only(store: DeltaMessageStore) -> None:
    done(store.create, Queue("passing", TerminusDurability.NONE))
    filled = [(message, body) for message, body in fill(store) if not message.is_staged]
    for message, _ in filled:
        done(store.enqueue, message, "passing")
        done(store.dequeue, message.message_id, "q", None)
        done(store.dequeue, message.message_id, "other", None)
    done(store.flush)
    check(store, filled)


def stage_with_header(
    store: DeltaMessageStore, pieces: list[bytes], body_bytes: int
) -> StoredMessage:
    """What the store service does: the first piece brings the header."""
    header = HEADER._replace(header_bytes=5, body_bytes=body_bytes)
    message_id, steps = store._machine.reserve(1)
    offset, first = 0, header
    for piece in pieces:
        record = content_staged(0, message_id, offset, piece, first)
        steps.append(RecordStep(record, is_kept=True))
        offset, first = offset + len(piece), None
    done(store._decide, decide=lambda: steps)
    return StoredMessage(message_id, header, b"", is_staged=True)


@pytest.mark.parametrize("body", [b"", b"short", bytes(range(256)) * 300])
def test_a_message_staged_with_its_header_survives_a_restart_and_is_enqueued_then(
    store: DeltaMessageStore, tmp_path: Path, body: bytes
) -> None:
    message = stage_with_header(store, [body[:100], body[100:]], len(body))
    whole = message._replace(body=body, is_staged=False)
    assert store.load_anywhere(message.message_id) == whole
    with pytest.raises(InvalidRequest, match="on no queue"):
        store.load(message.message_id)
    store.close()
    again = DeltaMessageStore(tmp_path / "root", COLD)
    assert again.load_anywhere(message.message_id) == whole
    done(again.enqueue, message, "q")
    assert again.load(message.message_id) == whole
    assert again._machine.state.staged == {}
    done(again.dequeue, message.message_id, "q", None)
    with pytest.raises(InvalidRequest, match="on no queue"):
        again.load(message.message_id)
    assert again.load_anywhere(message.message_id) == whole
    with pytest.raises(InvalidRequest, match="not in the store"):
        again.load_anywhere(message.message_id + 1)
    again.close()


def test_a_message_of_which_only_some_pieces_came_is_not_there(store: DeltaMessageStore) -> None:
    message = stage_with_header(store, [b"short"], 10)
    with pytest.raises(InvalidRequest, match="of 10 bytes came 5 so far"):
        store.load_anywhere(message.message_id)


def test_a_message_whose_staging_is_aborted_is_gone_for_good(
    store: DeltaMessageStore, tmp_path: Path
) -> None:
    message = stage_with_header(store, [b"short"], 5)
    done(store._decide, decide=lambda: store._machine.abort_staging(message.message_id))
    store.close()
    again = DeltaMessageStore(tmp_path / "root", COLD)
    for call in (again.load, again._machine.abort_staging):
        with pytest.raises(InvalidRequest):
            call(message.message_id)
    with pytest.raises(InvalidRequest, match="make a new message"):
        done(again.enqueue, message, "q")
    again.close()


def test_a_piece_that_came_again_after_a_restart_counts_once(
    store: DeltaMessageStore, tmp_path: Path
) -> None:
    """Its writer did not know whether it arrived; without a header, only the writer knows it."""
    message_id, steps = store._machine.reserve(1)
    pieces = [
        RecordStep(content_staged(0, message_id, offset, body), is_kept=True)
        for offset, body in ((0, b"abc"), (3, b"de"))
    ]
    done(store._decide, decide=lambda: [*steps, *pieces])
    store.close()
    again = DeltaMessageStore(tmp_path / "root", COLD)
    done(again._decide, decide=lambda: pieces)
    message = StoredMessage(
        message_id, HEADER._replace(header_bytes=5, body_bytes=5), b"", is_staged=True
    )
    with pytest.raises(InvalidRequest, match="make a new message"):
        done(again.enqueue, message, "q")
    assert again._machine.is_reserved(message_id)
    again._machine.trust(message_id)
    done(again.enqueue, message, "q")
    assert again.load(message_id).body == b"abcde"
    done(again.flush)
    assert again.load(message_id).body == b"abcde"
    again.close()


def test_a_store_that_was_closed_leaves_no_log_and_everything_is_there(tmp_path: Path) -> None:
    store = DeltaMessageStore(tmp_path / "root", COLD)
    done(store.create, Queue("q"))
    done(store.create, Queue("other"))
    filled = fill(store)
    store.close()
    assert [*(tmp_path / "root" / "wal").iterdir()] == []
    again = DeltaMessageStore(tmp_path / "root", COLD)
    check(again, filled)
    again.close()
