"""A store whose log takes nothing more, because Delta does not answer or the disk is full."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from broker_shim.completion import Completion
from broker_shim.errors import Full
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import MessageHeader
from tests.support.roots.logs import until
from tests.support.stores.stores import DELTA_CONFIG

SMALL = replace(DELTA_CONFIG, wal_file_bytes=1 << 20, max_wal_files=2, commit_interval_ms=10)


def fill_up(store: DeltaMessageStore) -> None:
    """Put messages on `q` until the log takes no more.

    One after the other: the log says that it is full when its thread has come so far.
    """
    while not is_full(store):
        done = Completion()
        message = store.message(MessageHeader(header=b"h"), bytes(50_000))
        store.enqueue(message, "q", done.finish)
        until(partial(_is_decided, store, done))


def _is_decided(store: DeltaMessageStore, done: Completion) -> bool:
    return done.is_complete or is_full(store)


def is_full(store: DeltaMessageStore) -> bool:
    """True while the log takes nothing."""
    try:
        with store.batch():
            return False
    except Full:
        return True
