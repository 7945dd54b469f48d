"""The options of a stream that takes messages, read from the texts that Spark hands over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from broker_shim.errors import InvalidRequest
from broker_shim.selectors import InvalidSelector, parse
from broker_shim.spark_sink.sink_settings import read_seconds
from broker_shim.store.protocol import check_lease
from sparkstore.core.queue_names import canonical
from sparkstore.spark_source.options import TICKET_OPTIONS, boolean, count, names_in, option_values


class TicketSettings(NamedTuple):
    """The options of one query; picklable, since every task gets them.

    Attributes:
        path: The root; empty if `socket` names its service.
        socket: Address of the service; None: that of the root.
        token_file: The file with the service's secret; None: it asks for none.
        wait_s: How long to wait for a service that is away, in seconds.
        queue: Name of the queue.
        selector: Which of its messages are taken; None: all.
        lease_s: How long the query keeps what it has taken when it is gone, in seconds.
        columns: Names of columns; none: the usual ones, `*`: all.
        max_records: Most messages in a batch.
        max_bytes: A batch that has so many bytes takes no more; None: no limit.
        fails_on_loss: A batch whose messages were given back ends the query.
    """

    path: str
    socket: str | None
    token_file: str | None
    wait_s: float
    queue: str
    selector: str | None
    lease_s: int
    columns: tuple[str, ...]
    max_records: int
    max_bytes: int | None
    fails_on_loss: bool


def ticket_settings(given: Mapping[str, str]) -> TicketSettings:
    """Check what was given for a stream that takes messages.

    Raises:
        InvalidRequest: An option is unknown, is missing, has no such value, or is of another road.
    """
    values = option_values(given, TICKET_OPTIONS)
    if not values["queue"]:
        raise InvalidRequest("a stream with settle = true needs the option queue: it takes from it")
    if not (values["path"] or values["socket"]):
        raise InvalidRequest("give the option path (the root) or socket (of the store service)")
    lease_s = count("leaseSeconds", values["leaseseconds"]) or 0
    check_lease(lease_s)
    selector = values["selector"] or None
    if selector is not None:
        try:
            parse(selector)
        except InvalidSelector as reason:
            raise InvalidRequest(f"option selector: {reason}") from reason
    return TicketSettings(
        values["path"],
        values["socket"] or None,
        values["tokenfile"] or None,
        read_seconds("waitSeconds", values["waitseconds"]),
        canonical(values["queue"]),
        selector,
        lease_s,
        names_in(values["columns"]),
        count("maxRecordsPerTrigger", values["maxrecordspertrigger"]) or 1,
        count("maxBytesPerTrigger", values["maxbytespertrigger"]),
        boolean("failOnDataLoss", values["failondataloss"]),
    )
