"""What serves a link, as its connection sees it: one object a link, of whatever kind."""

from __future__ import annotations

from typing import Protocol

from broker_shim.protocol_1_0.events import TransferPiece
from broker_shim.protocol_1_0.links.link import Delivery


class ServedEndpoint(Protocol):
    """The live object at our end of an attached link."""

    @property
    def is_gone(self) -> bool:
        """True once the link ended."""

    def start(self) -> None:
        """The link is attached on both sides."""

    def gone(self) -> None:
        """It ended; called once."""

    def on_flow(self) -> None:
        """Credit, a drain, or room to write again."""

    def on_disposition(self, delivery: Delivery) -> None:
        """The peer told a state of a delivery (`remote_state`), or settled it (`is_settled`)."""


class ReceivingEndpoint(ServedEndpoint, Protocol):
    """One on which we receive."""

    def on_transfer(self, piece: TransferPiece) -> None:
        """Bytes of a delivery."""

    def on_aborted(self, delivery: Delivery) -> None:
        """The peer gave a delivery up."""
