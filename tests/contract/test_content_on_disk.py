"""Content is the same bytes from memory, from the write-ahead log and from the journal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from broker_shim.durability import TerminusDurability
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import Message, MessageHeader, Queue
from tests.stores import DELTA_CONFIG, done

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


def fill(store: DeltaMessageStore) -> list[tuple[Message, bytes]]:
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


def check(store: DeltaMessageStore, filled: list[tuple[Message, bytes]]) -> None:
    for message, body in filled:
        loaded = store.load(message.message_id)
        assert (loaded.message_id, loaded.header, loaded.body) == (
            message.message_id,
            message.header,
            body,
        )


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


def test_while_it_is_on_a_transient_queue_only(store: DeltaMessageStore) -> None:
    done(store.create, Queue("passing", TerminusDurability.NONE))
    filled = [(message, body) for message, body in fill(store) if not message.is_staged]
    for message, _ in filled:
        done(store.enqueue, message, "passing")
        done(store.dequeue, message.message_id, "q", None)
        done(store.dequeue, message.message_id, "other", None)
    done(store.flush)
    check(store, filled)
