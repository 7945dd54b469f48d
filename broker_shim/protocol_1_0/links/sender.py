"""A link on which we send: it uses the peer's credit for deliveries, whole or in pieces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import add
from typing import Any

from broker_shim.amqp_1_0.composites import Attach, Flow
from broker_shim.amqp_1_0.definitions import SenderSettleMode
from broker_shim.protocol_1_0.codec.encoder import write
from broker_shim.protocol_1_0.codec.errors import InvalidCommand
from broker_shim.protocol_1_0.codec.sizes import kept_properties
from broker_shim.protocol_1_0.links.credit import SenderCredit
from broker_shim.protocol_1_0.links.link import Link
from broker_shim.protocol_1_0.links.outgoing_delivery import Outgoing
from broker_shim.protocol_1_0.links.port import SessionPort
from broker_shim.protocol_1_0.links.runs import Cuttable, Place, Run
from broker_shim.protocol_1_0.links.unsettled_maps import MAX_TAG_BYTES
from broker_shim.protocol_1_0.transitions import EndpointStep

MAX_STATE_BYTES = 256
"""Of a state told with a transfer, which has to fit the smallest frame that a peer may ask for."""


_TAGS = "a tag has at most 32 bytes and differs from all unsettled ones"


class SenderLink(Link):
    """Our end of a link on which the peer receives.

    What is handed over waits here while the session's window is shut; as only `credit` deliveries
    can be handed over, the caller bounds what waits.

    Attributes:
        flow_properties: Of the peer's flows, the last that mean something; whoever heeds them sets
            them to None.
    """

    is_receiver = False
    port: SessionPort

    def __init__(self, port: SessionPort, remote: Attach) -> None:
        super().__init__(port, remote)
        self.flow_properties: dict[Any, Any] | None = None
        self._credit = SenderCredit()
        self._current: Run | None = None
        self.runs: dict[Run, None] = {}
        self._current_is_settled = False

    @property
    def credit(self) -> int:
        """Return how many deliveries may be started; 0 while only resumed ones may go."""
        return 0 if self.is_gone or self.is_incomplete else self._credit.available

    @property
    def resume_credit(self) -> int:
        """Return how many deliveries may be resumed with their payload."""
        return 0 if self.is_gone else self._credit.available

    @property
    def is_draining(self) -> bool:
        """True while the peer waits for the credit to be used or given up: see `drained`."""
        return self._credit.is_draining

    def transfer(
        self,
        tag: bytes,
        pieces: Sequence[bytes | memoryview],
        *,
        settled: bool = False,
        more: bool = False,
        message_format: int = 0,
        state: Any = None,
        waits: bool = False,
        held: Any = None,
    ) -> Run:
        """Start a delivery; it is complete unless `more` is to come by `transfer_more`.

        Args:
            tag: At most 32 bytes; none of those unsettled on this link.
            pieces: Payload; not copied if it is in many frames, so it must not change until it was
                written.
            settled: Nothing is to be heard of it again.
            more: True if it goes on.
            message_format: 0 is AMQP's own.
            state: What is known of it, as a transactional state.
            waits: Take it without credit, too: it goes when there is more.
            held: As of `transfer_all`.

        Raises:
            InvalidCommand: No credit, unless it waits; another delivery is not complete; or one of
                the above.
        """
        if not (more or message_format):
            columns = [[piece] for piece in pieces]
            options: dict[str, Any] = {"state": state, "waits": waits, "held": held}
            return self.transfer_all([bytes(tag)], columns, settled=settled, **options)[0]
        self._check_new([tag], state, settled=settled, waits=waits)
        self._check_bytes(sum(map(len, pieces)))
        run = Run(self, [bytes(tag)], is_settled=settled, state=state, held=held)
        run.message_format = message_format
        self._start(run, pieces, more=more)
        return run

    def transfer_all(
        self,
        tags: Sequence[bytes],
        columns: Sequence[Sequence[bytes | memoryview]],
        *,
        settled: bool = False,
        state: Any = None,
        waits: bool = False,
        held: Cuttable | None = None,
    ) -> list[Run]:
        """Start deliveries that are complete, or none of them.

        What need not wait goes as one run; each of the others waits, or is longer, as a run of one.

        Args:
            tags: Of each, one at least, as for `transfer`.
            columns: Their payloads by pieces: the first of each, the second of each, …
            settled: Nothing is to be heard of them again.
            state: What is known of each, as for `transfer`.
            waits: Take them without credit, too: they go when there is more.
            held: What is kept with the deliveries (`Run.held`).

        Raises:
            InvalidCommand: Less credit than deliveries, unless they wait; or as `transfer`, of any
                of them.
        """
        self._check_new(tags, state, settled=settled, waits=waits)
        sizes = [*map(len, columns[0])] if columns else [0]
        for column in columns[1:]:
            sizes = [*map(add, sizes, map(len, column))]
        self._check_bytes(max(sizes))
        whole = 0 if state is not None else self.port.whole_count(self._credit, sizes)
        begun, at = list[Run](), 0
        while at < len(tags):
            count = whole if at < whole else 1
            rest = None if held is None or at + count == len(tags) else held.cut(count)
            some = tags[at : at + count]
            run = Run(self, some, is_settled=settled, state=state, held=held)
            begun.append(run)
            part = [column[at : at + count] for column in columns]
            if at < whole:
                self._begin(run)
                self.port.send_whole(run, self._credit, sizes[:count], part)
            else:
                self._start(run, [piece for (piece,) in part], more=False)
            held, at = rest, at + count
        return begun

    def _begin(self, run: Run) -> None:
        """Note deliveries that are handed over with their payload, and take credit."""
        self._credit.waiting += len(run)
        if not run.is_settled:
            self.remember(run)

    def acted_on(self, run: Run) -> None:
        """Forget deliveries that the peer settled, and of which nothing is to be done any more."""
        if run.is_settled:
            self.runs.pop(run, None)

    def part(self, run: Run, start: int, count: int) -> Run:
        """Cut some deliveries out of an unsettled run, or of any once the link has ended."""
        if len(run) == count:
            return run
        if not self.is_gone:
            return self.port.part(run, start, count)
        part = run.cut(start) if start else run  # the session has forgotten it: nobody else cuts it
        if count < len(part):
            part.cut(count)
        return part

    def dispose(self, places: Iterable[Place], state: Any) -> None:
        """Settle deliveries (`Run.place`) with a state that the peer is told."""
        self.port.dispose(self, places, state, settled=True)

    def resume(
        self,
        tag: bytes,
        pieces: Sequence[bytes | memoryview] = (),
        *,
        settled: bool = False,
        more: bool = False,
        message_format: int = 0,
        state: Any = None,
        waits: bool = False,
        held: Any = None,
    ) -> Run:
        """Go on with a delivery of an earlier attachment (2.6.13), else as `transfer`.

        With payload it takes credit, like any. Without, it only tells how the delivery stands
        and takes none: both sides know of the delivery already, and a receiver that gives no
        credit must not be kept from forgetting it.

        Args:
            tag: One of `earlier`.
            pieces: The message from its start, or from where a state `Received` says; none if
                `state` and `settled` are all there is to tell.
            settled: Nothing is to be heard of it again.
            more: True if it goes on.
            message_format: 0 is AMQP's own.
            state: How the delivery stands here.
            waits: Take it without credit, too: it goes when there is more.
            held: As of `transfer_all`.

        Raises:
            InvalidCommand: It is none of `earlier`, or as `transfer`.
        """
        self._check([tag], state)
        if tag not in self.earlier:
            message = f"{tag!r} is no delivery of an earlier attachment"
            raise InvalidCommand(message)
        is_free = not (more or any(map(len, pieces)))
        self._check_credit(1, waits=waits or is_free)
        run = Run(self, [bytes(tag)], is_settled=settled, state=state, held=held)
        run.message_format = message_format
        run.is_resumed = True
        self._check_bytes(sum(map(len, pieces)))
        self._start(run, pieces, more=more, is_free=is_free)
        del self.earlier[run.tag]
        return run

    def transfer_more(self, pieces: Sequence[bytes | memoryview], *, more: bool = False) -> None:
        """Go on with the delivery that is not complete.

        Raises:
            InvalidCommand: There is none; the peer takes no message so large.
        """
        run = self._unfinished()
        self._check_bytes(run.byte_count + sum(map(len, pieces)))
        self._send(run, pieces, is_first=False, is_last=not more)

    def abort(self) -> None:
        """Give up the delivery that is not complete; it is settled by that.

        Raises:
            InvalidCommand: There is none.
        """
        run = self._unfinished()
        self._current = None
        self.port.withdraw(run)
        has_begun = run.number >= 0
        if not has_begun:
            self._credit.waiting -= 1
        if has_begun or run.is_resumed:  # else the peer need not know
            self._send_abort(run)
        self.port.forget(run)

    def drained(self, *, available: int = 0) -> None:
        """Give up the credit that is left: there is nothing to send; `available` messages wait.

        Raises:
            InvalidCommand: The link is not attached.
        """
        self._after(EndpointStep.USED)
        self._credit.drained()
        self._flow(available, drain=True)

    def received_flow(self, flow: Flow) -> None:
        """Take a flow by which the peer gives credit, and answer it if the peer asks."""
        self.flow_properties = kept_properties(flow.properties) or self.flow_properties
        if flow.link_credit is not None:
            self._credit.grant(flow.delivery_count, flow.link_credit, drain=flow.drain)
        if flow.echo and not self.is_gone and self._is_answered:
            self._flow(0, drain=self._credit.is_draining)

    def _flow(self, available: int, *, drain: bool) -> None:
        self.port.flow(
            handle=self.handle,
            delivery_count=self._credit.delivery_count,
            link_credit=self._credit.available + self._credit.waiting,
            available=available,
            drain=drain,
        )

    def _unfinished(self) -> Run:
        self._after(EndpointStep.USED)
        if self._current is None:
            raise InvalidCommand("no delivery of this link is unfinished: start one")
        return self._current

    def _start(
        self,
        run: Run,
        pieces: Sequence[bytes | memoryview],
        *,
        more: bool,
        is_free: bool = False,
    ) -> None:
        self._begin(run)
        if is_free:
            self._credit.waiting -= 1
        self._current, self._current_is_settled = run, run.is_settled
        self._send(run, pieces, is_first=True, is_last=not more, is_free=is_free)

    def _send(
        self,
        run: Run,
        pieces: Sequence[bytes | memoryview],
        *,
        is_first: bool,
        is_last: bool,
        is_free: bool = False,
    ) -> None:
        if is_last:
            self._current = None
        run.byte_count += sum(map(len, pieces))
        outgoing = Outgoing(
            run,
            self._credit,
            self.handle,
            is_first=is_first,
            is_settled=self._current_is_settled,
            is_last=is_last,
            is_free=is_free,
            state=run.state if is_first else None,
        )
        outgoing.add(pieces)
        self.port.enqueue(outgoing)

    def _send_abort(self, run: Run) -> None:
        outgoing = Outgoing(
            run,
            self._credit,
            self.handle,
            is_first=run.number < 0,
            is_settled=True,
            is_last=True,
            is_aborted=True,
            is_free=True,
        )
        self.port.enqueue(outgoing)

    def _check_new(self, tags: Sequence[bytes], state: Any, *, settled: bool, waits: bool) -> None:
        """Check that deliveries may be started.

        Raises:
            InvalidCommand: They may not.
        """
        self._check(tags, state)
        mode = self.snd_settle_mode
        if mode is not SenderSettleMode.MIXED and settled != (mode == SenderSettleMode.SETTLED):
            message = f"settled {settled} on a link of snd-settle-mode {mode.name.lower()}"
            raise InvalidCommand(message)
        if self.is_incomplete or not self.earlier.keys().isdisjoint(tags):
            raise InvalidCommand("only resumed deliveries may go, or one of these is to be resumed")
        self._check_credit(len(tags), waits=waits)

    def _check(self, tags: Sequence[bytes], state: Any) -> None:
        self._after(EndpointStep.USED)
        if self._current is not None:
            raise InvalidCommand("another delivery of this link is unfinished: complete it first")
        if max(map(len, tags)) > MAX_TAG_BYTES or not self._tags.isdisjoint(tags):
            raise InvalidCommand(_TAGS)
        if len(tags) > 1 and len({*tags}) < len(tags):
            raise InvalidCommand(_TAGS)
        if state is not None and len(write(state)) > MAX_STATE_BYTES:
            message = f"a state of more than {MAX_STATE_BYTES} bytes"
            raise InvalidCommand(message)

    def _check_credit(self, count: int, *, waits: bool) -> None:
        if self._credit.available < count and not waits:
            raise InvalidCommand("no credit: wait for the peer's flow")

    def _check_bytes(self, byte_count: int) -> None:
        most = self.remote.max_message_size
        if most and byte_count > most:
            message = f"a message of {byte_count} bytes: the peer takes {most} at most"
            raise InvalidCommand(message)
