"""Write the tables of a queue's columns in the documents from what is declared of them.

`python -m broker_shim.generate` does so, after a declaration changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from broker_shim.argument_documents import between
from sparkstore.queue_columns import COLUMNS, QueueColumn, Road, columns_of

_ROADS = {
    Road.VIEW: "SQL",
    Road.CURRENT: "`current`",
    Road.LIST: "`queues`",
    Road.COMMAND: "`queue show`",
    Road.HTTP: "REST",
    Road.MANAGEMENT: "`$management`",
}


def main() -> None:
    """Write the tables of the pages."""
    for name in PAGES:
        path = Path(__file__).parents[1] / name
        path.write_text(page(name, path.read_text()))


def page(name: str, text: str) -> str:
    """Return a page with the table of columns as they are declared."""
    return between(text, "columns", PAGES[name]())


def _of_the_view() -> Iterator[str]:
    yield "| column | type | what it says |"
    yield "| --- | --- | --- |"
    for column in columns_of(Road.VIEW):
        yield f"| `{column.name}` | {column.kind} | {column.text} |"


def _of_all_roads() -> Iterator[str]:
    yield "| column | unit | what it says | where |"
    yield "| --- | --- | --- | --- |"
    for column in COLUMNS:
        yield f"| `{column.name}` | {column.unit} | {column.text} | {', '.join(_places(column))} |"


def _places(column: QueueColumn) -> Iterator[str]:
    yield from (word for road, word in _ROADS.items() if road in column.shown_by)
    if Road.METRICS in column.shown_by:
        end = "_total" if column.is_counter else ""
        yield f"`sparkstore_queue_{column.metric or column.name}{end}`"


PAGES: dict[str, Callable[[], Iterator[str]]] = {
    "docs/sql.md": _of_the_view,
    "docs/queues.md": _of_all_roads,
}
"""Where a table is, between its two comments."""
