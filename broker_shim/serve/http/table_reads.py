"""Reads of a root's tables for requests: few at once, and for a limited time.

They take seconds where a root is large, and memory of the broker's process. So they have threads of
their own, no more than run at once. Other requests do not wait for those, nor do probes, which have
a thread of theirs (`resources.probes`).

A read is a call of DuckDB or Arrow, which nobody can end from outside. Where it takes too long, or
whoever asked has gone, the request ends; the read counts until it has ended, too. So there are
never more of them than `MOST_AT_ONCE`, whatever askers do.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from broker_shim.serve.http.calls import Call
from broker_shim.serve.http.refusals import HttpRefusal
from broker_shim.store.delta import DeltaMessageStore
from sparkstore.tables.root import Root

MOST_AT_ONCE, MOST_S, PATIENCE_S = 2, 30.0, 5.0
_ROUND_S = 0.05

T = TypeVar("T")


class _Reads:
    """The reads of this process that run now. Used by the thread of the HTTP port."""

    count = 0
    threads = ThreadPoolExecutor(MOST_AT_ONCE, thread_name_prefix="http-tables")


async def read_tables(call: Call | None, read: Callable[[], T]) -> T:
    """Return what a read of tables returns, as soon as it has its turn.

    Args:
        call: The request, whose asker may go meanwhile; None: others wait for the answer, too.
        read: The read; it runs on a thread of its own kind.

    Raises:
        HttpRefusal: Others read for too long; or this read does; or whoever asked has gone.
    """
    loop = asyncio.get_running_loop()
    gone = asyncio.ensure_future(call.gone()) if call else loop.create_future()
    try:
        await _turn(gone)
        _Reads.count += 1
        running = loop.run_in_executor(_Reads.threads, read)
        running.add_done_callback(_ended)
        done, _ = await asyncio.wait(
            (running, gone), timeout=MOST_S, return_when=asyncio.FIRST_COMPLETED
        )
    finally:
        gone.cancel()
    if running in done:
        return running.result()
    text = f"reading the tables takes longer than {MOST_S:g} s: ask where the root is"
    raise HttpRefusal(503, f"{text}, by sparkstore")


async def flushed(call: Call) -> Root:
    """Return the root, once its tables have all that was done before.

    Raises:
        HttpRefusal: This broker keeps nothing.
    """
    root = root_of(call)
    if root is None:
        raise HttpRefusal(409, "this broker has no root to read: serve a folder or a bucket")
    await call.send(call.orders.flush())
    return root


def root_of(call: Call) -> Root | None:
    """Return the root whose tables have the broker's history; None if it keeps none."""
    store = call.served.store
    first = getattr(store, "first", store)
    return first.root if isinstance(first, DeltaMessageStore) else None


async def _turn(gone: asyncio.Future[None]) -> None:
    end = time.monotonic() + PATIENCE_S
    while _Reads.count >= MOST_AT_ONCE:
        if gone.done() or time.monotonic() >= end:
            text = f"{MOST_AT_ONCE} requests read the tables now: try again when one has ended"
            raise HttpRefusal(429, text, {"Retry-After": "1"})
        await asyncio.sleep(_ROUND_S)


def _ended(running: asyncio.Future[T]) -> None:
    _Reads.count -= 1
    if not running.cancelled():
        running.exception()  # whoever asked may have gone
