"""A piece of a delivery on its way out: cut into frames as the session's window allows."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from broker_shim.amqp_1_0.composites import Transfer
from broker_shim.protocol_1_0.links.credit import SenderCredit
from broker_shim.protocol_1_0.links.runs import Run
from broker_shim.protocol_1_0.output import Output


@dataclass(slots=True)
class Outgoing:
    """Payload that a link's owner handed over in one call, until all of it is written.

    Attributes:
        run: The delivery that the bytes belong to, a run of one.
        credit: Credit of its link; charged with the delivery's first frame.
        handle: The handle of its link.
        is_first: True until the delivery's first frame went.
        is_settled: True if the delivery is sent settled.
        is_last: True if the delivery ends with this piece.
        is_aborted: True if it ends because it is given up.
        is_free: True if it takes no credit: it carries a state and no message.
        state: A state to tell with the first frame.
        pieces: Payload that did not go yet.
        size: Bytes of it.
    """

    run: Run
    credit: SenderCredit
    handle: int
    is_first: bool
    is_settled: bool
    is_last: bool
    is_aborted: bool = False
    is_free: bool = False
    state: Any = None
    pieces: deque[bytes | memoryview] = field(default_factory=deque)
    size: int = 0

    @property
    def waits_for_credit(self) -> bool:
        """True if nothing of the delivery went, and its first frame may not go yet."""
        return not (self.run.number >= 0 or self.is_free or self.credit.left > 0)

    def add(self, pieces: Sequence[bytes | memoryview]) -> None:
        """Add payload, which is not copied: it must not change until it was written."""
        for piece in pieces:
            plain = piece if type(piece) is bytes else memoryview(piece).cast("B")
            if plain:
                self.pieces.append(plain)
                self.size += len(plain)

    def send_frame(self, output: Output, channel: int) -> bool:
        """Write one frame; True if nothing of this piece is left."""
        transfer = Transfer(
            self.handle,
            settled=self.is_settled,
            state=self.state,
            aborted=self.is_aborted,
            more=True,  # said or not, it is room that a frame needs
        )
        if self.is_first:
            transfer.delivery_id = self.run.delivery_id
            transfer.delivery_tag = self.run.tag
            transfer.message_format = self.run.message_format
            transfer.resume = self.run.is_resumed
        room = output.payload_room(transfer, self.size)
        transfer.more = room < self.size or not self.is_last
        output.transfer(channel, transfer, self._cut(room))
        self.is_first = False
        return not self.size

    def _cut(self, room: int) -> list[bytes | memoryview]:
        """Take the next `room` bytes."""
        if room == self.size:
            whole = list(self.pieces)
            self.pieces.clear()
            self.size = 0
            return whole
        self.size -= room
        taken: list[bytes | memoryview] = []
        while room:
            piece = memoryview(self.pieces.popleft())
            if len(piece) > room:
                self.pieces.appendleft(piece[room:])
                piece = piece[:room]
            taken.append(piece)
            room -= len(piece)
        return taken
