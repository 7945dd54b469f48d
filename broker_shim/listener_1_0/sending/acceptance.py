"""Consumers' decisions carried out and confirmed; whether deliveries without outcome failed."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from broker_shim.amqp_1_0.composites import Modified
from broker_shim.broker.flow.settlement import OnRemoved
from broker_shim.completion import OnComplete, nobody
from broker_shim.errors import StoreError
from broker_shim.listener_1_0.connections.connection import Connection
from broker_shim.listener_1_0.connections.links import Links
from broker_shim.listener_1_0.outcomes import ACCEPTED, DecidedRun
from broker_shim.listener_1_0.termini import default_outcome
from broker_shim.protocol_1_0.links.runs import Place, Run
from sparkstore.core.packed_integers import as_range

if TYPE_CHECKING:
    from broker_shim.listener_1_0.sending.outgoing_link import OutgoingLink


def accept(link: OutgoingLink, links: Links, runs: Sequence[DecidedRun]) -> None:
    """Take accepted messages off their queue, and tell their receiver."""
    end(link, links, runs, ACCEPTED, link.holdings.accept)


def end(
    link: OutgoingLink,
    links: Links,
    runs: Sequence[DecidedRun],
    state: object,
    carry_out: Callable[[Sequence[int], OnRemoved], None],
    on_done: OnComplete = nobody,
) -> None:
    """Carry a decision about messages out, and tell their receiver of it as it becomes durable.

    The next attach waits for that; then `on_done` is called with a failure, if there was any.
    """
    message_ids = as_range([*chain.from_iterable([decided.message_ids for decided in runs])])
    left, all_done = len(message_ids), links.tracked(link.terminus, on_done)
    failure: StoreError | None = None

    def done(ended: Sequence[int], outcomes: Sequence[StoreError | None]) -> None:
        nonlocal left, failure
        left -= len(ended)
        try:
            if len(ended) == len(message_ids) and not any(outcomes):
                link.confirm([decided.place for decided in runs], state)
                return
            rows = [*zip(ended, outcomes, strict=True)]
            failure = failure or next(filter(None, outcomes), None)
            durable = {message_id for message_id, error in rows if error is None}
            link.confirm([*_places(runs, durable)], state)
        finally:
            if not left:
                all_done(failure)

    carry_out(message_ids, done)


def _places(runs: Iterable[DecidedRun], message_ids: Container[int]) -> Iterator[Place]:
    """Find the deliveries of some of the messages."""
    for decided in runs:
        for message_id, place in decided.singles():
            if message_id in message_ids:
                yield place


def failed_count(connection: Connection, run: Run) -> int:
    """Count the first deliveries of a run without outcome, whose link is gone, that have failed.

    Decision (3.2.1, delivery-count: "unsuccessful previous attempts"; 3.5.3, default-outcome):
    where the connection was lost, a delivery that was written to it whole has failed. Its consumer
    may have failed over any of those, and cannot say. Where the peer left in good order, or we do,
    the link's default outcome holds, which is `released` unless its source said `modified` with
    `delivery-failed`. What was not written whole nobody can have used.
    """
    is_lost = not (connection.peer_parts or connection.broker.is_stopping)
    if is_lost or isinstance(default_outcome(run.link.remote.source), Modified):
        return run.written_count(connection.written_bytes)
    return 0
