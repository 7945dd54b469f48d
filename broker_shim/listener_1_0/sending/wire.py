"""Messages on the wire of one link: a small one at once, a large one in pieces, one at a time.

`Wire` sends them, as much as there is room for at the peer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from broker_shim.amqp_1_0.composites import TransactionalState
from broker_shim.amqp_1_0.definitions import SenderSettleMode
from broker_shim.broker.delivery.taken_run import TakenRun
from broker_shim.broker.storage.contents import StoreContents
from broker_shim.errors import CorruptData
from broker_shim.listener_1_0.messages.framed_runs import framed_together
from broker_shim.listener_1_0.messages.message import FramingHeader, framing
from broker_shim.protocol_1_0.links.runs import Run
from broker_shim.protocol_1_0.links.sender import SenderLink
from sparkstore.core.annotations import is_untouched
from sparkstore.core.records import MessageHeader

_AROUND_BYTES = 64
"""What framing adds to a message as it came, beside annotations, at most: a header section."""
_PIECE_BYTES = 1 << 18


class Wire:
    """The transfers of one link: nothing else is begun while a large message is sent.

    Attributes:
        large: What is being sent in pieces: nothing else may be begun meanwhile.
    """

    def __init__(self, link: SenderLink, contents: StoreContents) -> None:
        """Begin with nothing; `contents` are those of the broker's messages."""
        self._link, self._contents = link, contents
        self.large: TakenRun | None = None
        self._delivery: Run | None = None
        self._framing, self._offset = FramingHeader(b"", b"", 0), 0

    def takes(self, run: TakenRun) -> list[bool]:
        """Tell of each message whether the peer takes one so large."""
        most = self._link.remote.max_message_size
        if not most:
            return [True] * len(run)
        return [
            header.header_bytes + header.body_bytes + _AROUND_BYTES + len((detail or "").encode())
            <= most
            for header, detail in zip(run.headers, run.facts.details, strict=True)
        ]

    def send(
        self,
        tags: Sequence[bytes],
        run: TakenRun,
        failures: Sequence[int],
        *,
        now_us: int,
        are_copies: bool = False,
        waits: bool = False,
        state: TransactionalState | None = None,
    ) -> list[Run]:
        """Send messages whose content is here, or none of them; or begin a large one.

        Args:
            tags: Names of the deliveries; of one that the link brought from before it is that.
            run: Messages that follow each other, or a large one.
            failures: Failed deliveries of each.
            now_us: The time of sending, UTC µs.
            are_copies: Their receiver never acquires them, and they are not to be settled.
            waits: Take them without credit, too: they go when there is more.
            state: Of new deliveries.

        Raises:
            InvalidCommand: The link has ended, or a large message is being sent; or there is no
                credit, unless it `waits` for more.
            DecodeError: A header is not what a listener makes.
        """
        settled = self._link.snd_settle_mode == SenderSettleMode.SETTLED
        held = None if are_copies or settled else run
        around = _around(run, failures, now_us, are_copies=are_copies)
        columns = [[framed.lead for framed in around]]
        if not run.is_large:
            columns += [run.bodies, [framed.tail for framed in around]]
        if tags[0] in self._link.earlier:
            pieces = [piece for (piece,) in columns]
            again = self._link.resume(
                tags[0], pieces, settled=settled, more=run.is_large, waits=waits, held=held
            )
            sent = [again]
        elif run.is_large:
            first = self._link.transfer(
                tags[0], columns[0], settled=settled, more=True, waits=waits, state=state, held=held
            )
            sent = [first]
        else:
            sent = self._link.transfer_all(
                tags, columns, settled=settled, waits=waits, state=state, held=held
            )
        if run.is_large:
            self.large, self._delivery, self._framing, self._offset = run, sent[0], around[0], 0
        return sent

    def go_on(self, room_bytes: int) -> bool:
        """Write about so much of the large one; True when all of it is written.

        Raises:
            StoreError: Its content cannot be read, or ends too early: `break_off`.
        """
        assert self.large is not None
        written, size = 0, self._framing.body_bytes
        while self._offset < size:
            if written >= room_bytes:
                return False
            piece = self._contents.read(self.large.message_ids[0], self._offset, _PIECE_BYTES)
            if not piece:
                message = f"content of {size} bytes ends at {self._offset}"
                raise CorruptData(message)
            self._link.transfer_more((piece,), more=True)
            self._offset += len(piece)
            written += len(piece)
        self._link.transfer_more((self._framing.tail,))
        self.drop()
        return True

    def is_sending(self, delivery: Run) -> bool:
        """True if this delivery is begun and not written whole."""
        return self._delivery is delivery

    def break_off(self) -> Run:
        """Tell the peer that the rest of the large one will not come; its delivery."""
        broken = self._delivery
        assert broken is not None
        self.drop()
        if not self._link.is_gone:
            self._link.abort()
        return broken

    def drop(self) -> None:
        """Forget what was begun, as the link ended."""
        self.large = self._delivery = None


def _around(
    run: TakenRun, failures: Sequence[int], now_us: int, *, are_copies: bool
) -> list[FramingHeader]:
    """Make what goes before and after each content: neighbours that are alike have the same."""
    facts, count = run.facts, len(run)
    columns: list[Sequence[Any]] = [run.headers, facts.expires_at, facts.details, failures]
    rows = zip(*columns, strict=True)
    before = next(rows)
    around = _framed(*before, now_us=now_us, are_copies=are_copies)
    if all(column.count(column[0]) == count for column in columns[1:]):  # as most
        if columns[0].count(before[0]) == count:
            return [around] * count
        together = framed_together(around, columns[0]) if before[1:3] == (None, None) else None
        if together is not None:
            return together
    made = [around]
    for row in rows:
        if row != before:
            before, around = row, _framed(*row, now_us=now_us, are_copies=are_copies)
        made.append(around)
    return made


def _framed(
    header: MessageHeader,
    expires_at: int | None,
    detail: str | None,
    failures: int,
    *,
    now_us: int,
    are_copies: bool,
) -> FramingHeader:
    """Make the same of one message, by what is known of it."""
    if expires_at != header.expires_at:
        header = header._replace(expires_at=expires_at)
    return framing(
        header,
        delivery_count=failures,
        now_us=now_us,
        is_first=not are_copies and is_untouched(detail, failures),
        detail=detail,
    )
