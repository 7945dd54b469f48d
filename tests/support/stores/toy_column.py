"""Ask each road for a column `toy` of a queue, which whoever imports this has declared before.

`answers` is for a process of its own: models, schemas and attributes are made of the declaration
when their modules are loaded.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from contextlib import closing, redirect_stdout
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from deltalake import DeltaTable

import sparkstore
from broker_shim import column_documents, table_documents
from broker_shim.serve.metric_families import broker_families
from broker_shim.store.interface import Queue
from sparkstore.cli.command_line import main
from sparkstore.current.publication import publish
from sparkstore.metrics.exposition import encoded
from tests.support.amqp import link_clients
from tests.support.amqp.management import Manager
from tests.support.checkout import CHECKOUT
from tests.support.stores.controls import Place


def printed(*words: str) -> str:
    """Return what a command prints."""
    text = io.StringIO()
    with redirect_stdout(text):
        assert main([*words]) == 0
    return text.getvalue()


def of_a_served_root(folder: Path) -> dict[str, Any]:
    """Ask a broker with three messages on `q`, and the tables of its root."""
    with closing(Place(folder, is_served=True)) as place:
        rows = _of_a_broker(place)
    publish(folder)
    table = DeltaTable(f"{folder}/current/queues").to_pyarrow_table()
    return rows | {"current": table.column("toy").to_pylist()[0]}


def _of_a_broker(place: Place) -> dict[str, Any]:
    place.create("q")
    place.put("q", count=3)
    place.control.flush()
    served = place.served
    assert served is not None
    url = served.serve_http()
    root = str(place.path)

    def asked(path: str) -> Any:
        with urlopen(f"{url}/{path}") as answer:
            return answer.read().decode()

    def command(*words: str) -> Any:
        return json.loads(printed(*words, "--json"))["toy"]

    metrics = encoded(broker_families(served.broker, served.store, 0)).decode()
    schemas = json.loads(asked("api/v1/openapi.json"))["components"]["schemas"]
    return {
        "OpenAPI": schemas["QueueRow"]["properties"]["toy"],
        "REST": json.loads(asked("api/v1/queues/q"))["toy"],
        "metrics": [line for line in metrics.splitlines() if "queue_toy" in line],
        "queues": command("queues", root),
        "queues --url": command("queues", "--url", url),
        "queue show": command("queue", "show", root, "q"),
        "queue show --url": command("queue", "show", "--url", url, "q"),
        "table of queues": [line.split() for line in printed("queues", root).splitlines()],
        "DuckDB": sparkstore.query(root, "SELECT toy FROM queues").to_pylist()[0]["toy"],
    }


def of_management(folder: Path) -> dict[str, Any]:
    """Ask `$management` of a broker with an empty queue."""
    folder.mkdir()
    house = link_clients.House(link_clients.Place("recorded", folder))
    house.broker.create_queue(Queue("q"), lambda _error: None)
    house.run()
    manager = Manager(house, link_clients.Client(house))
    answer = manager.ask(operation="READ", type="queue", name="q")
    house.close()
    return {"$management": answer.body["toy"]}


def of_documents() -> dict[str, Any]:
    """Make the documents anew, and find the lines that are about the column."""
    pages: dict[str, Callable[[], str]] = {"docs/tables.md": table_documents.page}
    for name in column_documents.PAGES:
        text = (CHECKOUT / name).read_text()
        pages[name] = lambda name=name, text=text: column_documents.page(name, text)  # type: ignore[misc]
    return {
        name: [line for line in page().splitlines() if line.startswith("| `toy`")]
        for name, page in pages.items()
    }


def answers(folder: str) -> str:
    """Return what each road answers, as JSON; the folder is empty."""
    where = Path(folder)
    roads = of_a_served_root(where / "root") | of_management(where / "house") | of_documents()
    return json.dumps(roads)
