"""The notebook runs from its first cell to its last, on a small store."""

from __future__ import annotations

import os

import nbformat
import pytest
from nbclient import NotebookClient

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
from tests.support.checkout import CHECKOUT
from tests.support.spark.tables import HEADER, journal

NOTEBOOK = CHECKOUT / "notebooks" / "queues.ipynb"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # nbclient's own: event loops, zmq
def test_the_notebook_shows_the_queues_with_two_charts(
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
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([f"{CHECKOUT}", os.environ.get("PYTHONPATH", "")])
    )
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    NotebookClient(notebook, timeout=600).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 2
    assert any("late 1 4 1 {'anna': 1}" in output.get("text", "") for output in outputs)


def test_the_notebook_is_committed_without_outputs() -> None:
    cells = nbformat.read(NOTEBOOK, as_version=4).cells  # type: ignore[no-untyped-call]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
