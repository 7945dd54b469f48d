"""The removal of what a consumer accepted; and whether deliveries without outcome failed."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from broker_shim.amqp_1_0.composites import Modified
from broker_shim.errors import StoreError
from broker_shim.listener_1_0.connections.connection import Connection
from broker_shim.listener_1_0.connections.links import Links
from broker_shim.listener_1_0.outcomes import ACCEPTED, DecidedRun
from broker_shim.listener_1_0.termini import default_outcome
from broker_shim.protocol_1_0.links.sent_runs import Place, SentRun

if TYPE_CHECKING:
    from broker_shim.listener_1_0.sending.outgoing_link import OutgoingLink


def accept(link: OutgoingLink, links: Links, runs: Sequence[DecidedRun]) -> None:
    """Take accepted messages off their queue, and tell their receiver.

    The next attach waits for that.
    """
    message_ids = [message_id for decided in runs for message_id in decided.message_ids]
    left, all_told = len(message_ids), links.tracked(link.terminus, _nothing)

    def done(ended: Sequence[int], outcomes: Sequence[StoreError | None]) -> None:
        nonlocal left
        left -= len(ended)
        try:
            if len(ended) == len(message_ids) and not any(outcomes):
                link.confirm([decided.place for decided in runs], ACCEPTED)
                return
            rows = zip(ended, outcomes, strict=True)
            durable = {message_id for message_id, error in rows if error is None}
            link.confirm([*_places(runs, durable)], ACCEPTED)
        finally:
            if not left:
                all_told(None)

    link.holdings.accept(runs[0].message_ids if len(runs) == 1 else message_ids, done)


def _places(runs: Iterable[DecidedRun], message_ids: Container[int]) -> Iterator[Place]:
    """Find the deliveries of some of the messages."""
    for decided in runs:
        for message_id, place in decided.singles():
            if message_id in message_ids:
                yield place


def failed_count(connection: Connection, run: SentRun) -> int:
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


def _nothing(_error: StoreError | None) -> None:
    """Ignore the outcome: no other caller waits for it."""
