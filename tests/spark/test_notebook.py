"""The notebooks that start Spark in their own kernel run from first cell to last, in one JVM."""

from __future__ import annotations

import re

import pytest

from sparkstore.core.records import (
    ExchangeBindingKey,
    bound,
    exchange_created,
    ids_reserved,
    message_acquired,
    message_enqueued,
    opened,
    queue_created,
)
from sparkstore.tables.root import Root
from tests.support.notebooks import run_notebook
from tests.support.spark.tables import HEADER, journal


@pytest.mark.slow
def test_queues_shows_two_charts_and_stream_takes_each_order_once(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal(
        root,
        [
            opened(1, "w"),
            ids_reserved(1, 100),
            queue_created(1, "late", "{}"),
            exchange_created(1, "flights", "{}"),
            bound(1, ExchangeBindingKey("flights", "late", "#"), "{}"),
            message_enqueued(2, "late", 1, HEADER, b"abc"),
            message_acquired(3, "late", 1, "anna"),
        ],
    )
    monkeypatch.setenv("SPARKSTORE_ROOT", str(root.path))
    shown = run_notebook("queues", "stream")
    assert shown.count("image/png") == 2
    assert "late 1 4 1 {'anna': 1}" in shown
    _queues, stream = shown.split("|orders|      12|")
    assert "0 behind" in stream
    assert "12 orders in the lake, 12 different" in stream
    assert re.search(r'\|\{"number":0,"price":5\} +\|\d+ ', stream)
    assert "exit code 0" in stream
