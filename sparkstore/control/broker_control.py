"""Have a broker carry orders out by its HTTP endpoints: `AdminClient` over a `BrokerClient`.

Decision: an order is sent as what it is about, such as `PUT queues/NAME`, and never as an encoded
`Order`: a script of somebody else's asks the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from sparkstore.operations.administration import DURABILITIES, Order
from sparkstore.operations.branch_orders import BranchAct, BranchOrder
from sparkstore.operations.bulk import Action, Answer, MessageDraft, Request, check_words
from sparkstore.operations.placement import PlacementRequest
from sparkstore.operations.placement_wire import placements_content
from sparkstore.operations.wire import ALL, draft_content

if TYPE_CHECKING:
    from sparkstore.control.http_client import BrokerClient

_BRANCHES = {
    BranchAct.COMMIT: "commit",
    BranchAct.ROLL_BACK: "rollback",
    BranchAct.FORGET: "forget",
}


class HeldRows(NamedTuple):
    """Messages that somebody holds.

    Attributes:
        shown: The held messages, as many as were asked for, with their queues and holders.
        left_out: How many more are held.
    """

    shown: list[dict[str, Any]]
    left_out: int


class BrokerControl:
    """An `AdminClient` that asks a broker over HTTP."""

    def __init__(self, broker: BrokerClient) -> None:
        """Use a client, which `close` closes.

        Attributes:
            broker: Asks the broker.
        """
        self.broker = broker

    def order(self, order: Order, *, dry_run: bool = False) -> dict[str, Any]:
        """Have an order carried out, or tried; the answer as `administration.decide` words it."""
        method = order.act.method
        values = order._asdict() | {"durability": DURABILITIES[order.durability]}
        arguments = order.arguments.items()
        values["set"] = {name: value for name, value in arguments if value is not None}
        values["unset"] = [name for name, value in arguments if value is None]
        content = {name: values[name] for name in order.act.fields} | {"dry_run": dry_run}
        place = order.act.path.format(
            **{name: path_of(str(value)) for name, value in values.items()}
        )
        if method == "DELETE":
            return _outcome(self.broker.ask(method, place, **content))
        return _outcome(self.broker.ask(method, place, content))

    def run(self, request: Request) -> Answer:
        """Have a request carried out (`AdminClient.run`)."""
        check_words(request)
        body = {"ids": request.message_ids, "operation": request.operation}
        if request.to is not None:
            body["to"] = request.to
        answer = self.broker.ask("POST", path_of("queues", request.queue, request.action), body)
        if request.action is not Action.REDRIVE:
            return _fates(answer)
        full = sum(answer["full"].values())  # it is by queue; what is gone is in no plan
        gone = len(request.message_ids) - answer["done"] - answer["left"] - full
        return Answer(answer["done"], answer["left"], gone, full)

    def put(self, queue: str, messages: Sequence[MessageDraft]) -> Answer:
        """Have new messages put on a queue (`AdminClient.put`)."""
        body = {"messages": [draft_content(message) for message in messages]}
        return _fates(self.broker.ask("POST", path_of("queues", queue, "messages"), body))

    def place(self, request: PlacementRequest) -> Answer:
        """Have changes of place carried out (`AdminClient.place`)."""
        return _fates(self.broker.ask("POST", "placements", placements_content(request)))

    def flush(self) -> None:
        """Have all that was done put into the tables (`AdminClient.flush`)."""
        self.broker.ask("POST", "flush")

    def branch(self, order: BranchOrder) -> dict[str, Any]:
        """Have a branch in doubt decided (`AdminClient.branch`)."""
        place = path_of("transactions", order.xid, _BRANCHES[order.act])
        return _outcome(self.broker.ask("POST", place, by=order.by))

    def purge(
        self, queue: str, show: Callable[[Answer], None], operation: str | None = None
    ) -> Answer:
        """Have a queue purged, showing how far it is (`AdminClient.purge`)."""
        path, answer = path_of("queues", queue, "purge"), dict[str, Any]()
        for line in self.broker.lines("POST", path, {"operation": operation}):
            answer = json.loads(line)
            if "so_far" in answer:
                show(_fates(answer["so_far"]))
            elif "error" in answer:
                raise self.broker.error_of(answer["status"], answer)
        return _fates(answer)

    def holders(self, limit: int | None) -> HeldRows:
        """Return the messages that are held now, with their holders: `limit` at most; None: all.

        Raises:
            Unavailable: The broker went away.
        """
        answer = self.broker.ask("GET", "holders", limit=limit or ALL)
        return HeldRows(answer["items"], answer["left_out"])

    def not_durable(self) -> dict[str, int]:
        """Messages by queue that are in the broker's memory only.

        Raises:
            StoreError: The broker went away.
        """
        counts: dict[str, int] = self.broker.ask("GET", "not-durable")["queues"]
        return counts

    def connections(self) -> tuple[list[dict[str, Any]], list[str]]:
        """Return the connected clients, those of members too, and the members that did not answer.

        Raises:
            Unavailable: The broker went away.
        """
        rows, silent, total = list[dict[str, Any]](), list[str](), 1
        while len(rows) < total:
            page = self.broker.ask("GET", "connections", limit=1_000, offset=len(rows))
            rows += page["items"]
            silent, total = page["silent"], page["total"] if page["items"] else 0
        return rows, silent

    def close_connection(self, number: int, member: str | None = None) -> dict[str, Any]:
        """End a connection, here or at a member; what it was.

        Raises:
            InvalidRequest: There is none of this number.
            Unavailable: The broker went away.
        """
        place = path_of("connections", str(number))
        return _outcome(self.broker.ask("DELETE", place, member=member))

    def close(self) -> None:
        """Close the connection to the broker."""
        self.broker.close()


def path_of(*names: str) -> str:
    """Return the path of these names, each percent-encoded as a whole."""
    return "/".join(quote(name, safe="", errors="surrogatepass") for name in names)


def _fates(answer: Mapping[str, Any]) -> Answer:
    return Answer(*(answer[name] for name in Answer._fields))


def _outcome(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to an order with its details beside what it did."""
    dry = {"dry_run": True} if answer["dry_run"] else {}
    return {**dry, "act": answer["act"], **answer["details"], "changed": answer["changed"]}
