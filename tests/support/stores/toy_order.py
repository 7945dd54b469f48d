"""Declare an order `toy` in the two places that CONTRIBUTING names, and give it on each road.

It is for a process of its own: importing this adds an endpoint to the table, and a command.
"""

from __future__ import annotations

import json
from argparse import Namespace
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

from msgspec import Struct

from broker_shim.security.rules.rights import Act
from broker_shim.serve.http.bodies import OrderModel
from broker_shim.serve.http.calls import Call
from broker_shim.serve.http.endpoint import OPERATOR, QUEUE, Endpoint
from broker_shim.serve.http.resources import queues
from sparkstore.cli.administration import queue_orders
from sparkstore.cli.output import show_row
from sparkstore.cli.parsing import ROOT, add_dry_run, command, is_dry
from sparkstore.cli.target import running_broker
from sparkstore.control.broker_control import path_of

if TYPE_CHECKING:
    from sparkstore.cli.parsing import Subparsers

# First file: broker_shim/serve/http/resources/queues.py, the file of the noun.


class ToyOrder(OrderModel, kw_only=True):
    """Toys that each message gets."""

    count: int


class ToyOutcome(Struct, kw_only=True):
    """The toys that all messages got."""

    queue: str
    toys: int
    dry_run: bool


async def give_toys(call: Call) -> ToyOutcome:
    """Give toys to each message of a queue."""
    name, body = await call.named_queue(), call.body
    depth = await call.read(lambda: len(call.broker.queues[name]))
    return ToyOutcome(queue=name, toys=body.count * depth, dry_run=body.dry_run)


queues.ENDPOINTS = (  # type: ignore[assignment]
    *queues.ENDPOINTS,
    Endpoint(
        *("POST", QUEUE + "/toys", OPERATOR, give_toys, ToyOutcome),
        body=ToyOrder,
        acts=(Act.PURGE,),
    ),
)

# Second file: sparkstore/cli/administration/queue_orders.py, with the commands of the noun.


def toys(arguments: Namespace) -> int:
    """Give toys to each message of a queue."""
    order = {"count": int(arguments.count), "dry_run": is_dry(arguments)}
    with running_broker(arguments) as control:
        path = path_of("queues", arguments.queue, "toys")
        show_row(arguments, control.broker.ask("POST", path, order))
    return 0


add_queue_orders = queue_orders.add


def add(subparsers: Subparsers) -> None:
    """Add the commands of a queue, and this one."""
    add_queue_orders(subparsers)
    positional = (ROOT, ("queue", "name of the queue"), ("count", "how many each message gets"))
    summary = "give toys to each message of a queue"
    parser = command(subparsers, toys, summary, "", positional=positional, by_url=True)
    add_dry_run(parser, "say how many it would be")


queue_orders.add = add

# What follows asks for it.


def answers(folder: str) -> str:
    """Return what each road answers of a queue with three messages, as JSON."""
    from broker_shim import endpoint_documents  # noqa: PLC0415  # made of the above
    from broker_shim.serve.http.endpoints import ENDPOINTS  # noqa: PLC0415
    from broker_shim.serve.http.openapi import openapi_of  # noqa: PLC0415
    from tests.support.checkout import CHECKOUT  # noqa: PLC0415
    from tests.support.stores.controls import Place  # noqa: PLC0415
    from tests.support.stores.toy_column import printed  # noqa: PLC0415

    def ordered(*words: str) -> Any:
        return json.loads(printed("toys", *words, "--json"))

    with closing(Place(Path(folder) / "root", is_served=True)) as place:
        place.create("q")
        place.put("q", count=3)
        place.control.flush()
        assert place.served is not None
        url, root = place.served.serve_http(), str(place.path)
        request = Request(f"{url}/api/v1/queues/q/toys", b'{"count": 7}', method="POST")
        request.add_header("Content-Type", "application/json")
        with urlopen(request) as answer:
            by_tcp = json.load(answer)
        roads = {
            "HTTP": by_tcp,
            "command at ROOT": ordered(root, "q", "7"),
            "command at --url": ordered("--url", url, "q", "7"),
            "a dry run": ordered(root, "q", "7", "--dry-run"),
        }
    described = openapi_of(ENDPOINTS, "1")["paths"]["/api/v1/queues/{queue}/toys"]["post"]
    page = endpoint_documents.page((CHECKOUT / endpoint_documents.PAGE).read_text())
    return json.dumps(
        {
            **roads,
            "OpenAPI": [described[name] for name in ("summary", "x-rights", "x-dry-run")],
            "docs/http.md": [row for row in page.splitlines() if "/toys`" in row],
            "completion": "toys" in printed("completion", "bash"),
        }
    )
