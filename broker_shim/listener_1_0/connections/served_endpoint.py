"""The live object at our end of a link: what its connection tells it, and who does nothing then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from broker_shim.protocol_1_0.events import DeliveriesReceived, TransferPiece
from broker_shim.protocol_1_0.links.link import Delivery
from broker_shim.protocol_1_0.links.runs import Run


class ServedEndpoint:
    """Our end of a link. This one does nothing: for a link that nobody serves, or not yet.

    Attributes:
        has_ended: True from `gone` on.
    """

    def __init__(self, link: Any) -> None:
        """Begin before the link is answered."""
        self._link = link
        self.has_ended = False

    @property
    def is_gone(self) -> bool:
        """True once nothing can be sent on the link any more; `gone` follows."""
        return self.has_ended or self._link.is_gone

    def start(self) -> None:
        """Begin to serve the link, which is attached on both sides."""

    def gone(self) -> None:
        """End the endpoint, whose link ended. Called once."""
        self.has_ended = True

    def on_flow(self) -> None:
        """Act on credit, a drain, or room to write again."""

    def on_dispositions(self, runs: Sequence[Run]) -> None:
        """The peer told a state of deliveries (`remote_state`), or settled them (`is_settled`)."""

    def on_deliveries(self, came: DeliveriesReceived) -> int:
        """Take deliveries that came whole, in order; return how many, one or more."""
        return came.delivery.length

    def on_transfer(self, piece: TransferPiece) -> None:
        """Take bytes of a delivery."""

    def on_aborted(self, delivery: Delivery) -> None:
        """Drop a delivery that the peer gave up."""
