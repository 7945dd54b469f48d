"""Declare the columns of rows of connections and links, each once, for all roads. Pure.

Rows of REST and of the command `connections` follow from them, and so does what a member
answers the store service. A member of an older release leaves out what it does not know.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class ConnectionColumn(NamedTuple):
    """Declare a column of the row of a connection, or of a link.

    Attributes:
        name: Its name, on each road.
        kind: The type of its values.
        text: A sentence that says what it is.
    """

    name: str
    kind: Any
    text: str


COLUMNS = (
    ConnectionColumn("member", str | None, "Member of the store service that has it; null: this."),
    ConnectionColumn("connection", int, "Its number, which no other of its process has."),
    ConnectionColumn("peer", str, "Address and port of the client."),
    ConnectionColumn("user", str, "User who logged in."),
    ConnectionColumn("protocol", str | None, "Protocol that the client speaks."),
    ConnectionColumn("product", str | None, "Program of the client, as it names itself."),
    ConnectionColumn("tls", str | None, "Version of TLS; null: none."),
    ConnectionColumn("container", str | None, "Name that the client gave itself."),
    ConnectionColumn("sessions", int | None, "Sessions that are open."),
    ConnectionColumn("links", int, "Links, or subscriptions."),
    ConnectionColumn("heartbeat_s", float | None, "Silence after which the client gives up."),
    ConnectionColumn("received_bytes", int | None, "Bytes that came, without TLS."),
    ConnectionColumn("sent_bytes", int | None, "Bytes that were sent, without TLS."),
    ConnectionColumn("connected_at", str, "Time when it came, ISO 8601."),
    ConnectionColumn("open", bool, "Whether the client may send and receive."),
)


LINK_COLUMNS = (
    ConnectionColumn("name", str, "Name of the link, or destination of the subscription."),
    ConnectionColumn("role", str, "What its client does there: sender or receiver."),
    ConnectionColumn("address", str | None, "Node that it is to; null: a dynamic one, or none."),
    ConnectionColumn("credit", int, "Messages that may come on it now, by credit or prefetch."),
    ConnectionColumn("unsettled", int, "Deliveries on it that are not settled."),
    ConnectionColumn("settle_mode", str, "How its sender and its receiver settle."),
)
"""Columns of the row of a link, or of a subscription of AMQP 0-10, which keeps no other."""


def row_of(
    values: dict[str, Any], columns: tuple[ConnectionColumn, ...] = COLUMNS
) -> dict[str, Any]:
    """Return the row of a connection or link, with null for what is not known."""
    return {column.name: values.get(column.name) for column in columns}
