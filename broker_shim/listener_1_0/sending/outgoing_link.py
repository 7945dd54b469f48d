"""A link on which a client receives: credit, deliveries, and what the client decided."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from broker_shim.amqp_1_0.composites import (
    Accepted,
    Modified,
    Rejected,
    Released,
    TransactionalState,
)
from broker_shim.amqp_1_0.definitions import AmqpError
from broker_shim.broker.delivery.taken_run import TakenRun
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.completion import OnComplete, nobody
from broker_shim.links import LinkEndpoint, link_text
from broker_shim.listener_1_0 import conditions, outcomes
from broker_shim.listener_1_0.connections.connection import Connection
from broker_shim.listener_1_0.connections.links import Held
from broker_shim.listener_1_0.connections.resumption import ResumptionPlan
from broker_shim.listener_1_0.connections.served_endpoint import ServedEndpoint
from broker_shim.listener_1_0.outcomes import DecidedRun, kept_of, rejection
from broker_shim.listener_1_0.sending.acceptance import accept, end, failed_count
from broker_shim.listener_1_0.sending.held_deliveries import Resumption
from broker_shim.listener_1_0.sending.link_outlet import LinkOutlet
from broker_shim.listener_1_0.sending.retirements import Retirements
from broker_shim.listener_1_0.transactions.acquisitions import Acquisitions
from broker_shim.protocol_1_0.links.runs import Place, Run
from broker_shim.protocol_1_0.links.sender import SenderLink
from broker_shim.selectors import Selector
from broker_shim.transactions.transaction_refusals import TransactionRefused, rolled_back

_UNDER_WAY = 1024
"""So many at most are under way to be acquired: what a peer that does not read can hold, beside
what may be buffered, however much credit it gave."""
_TURN = 512
"""So many are taken in one turn, which takes two milliseconds. The next follow in the next one,
while these are in the log: a link that waited for them would stand still for each sync."""

_TXN_ID = "txn-id"
_SETTLED_WITHIN = conditions.Refusal(
    AmqpError.NOT_IMPLEMENTED, "settled deliveries in a transaction: ask for unsettled ones"
)
"""They have left the queue when they are sent: a rollback could not bring them back (4.4.3)."""
_FAILED = Modified(delivery_failed=True)


class OutgoingLink(ServedEndpoint):
    """Our sending end of a link: a consumer of one queue.

    Invariant: a message that was assigned is, until it is given back or removed, in exactly one of:
    on its way to the wire (`ConsumerDelivery`), held by a run of its link without a decision, in a
    transaction (`Retirements`), under way to be settled. A run that its peer settled stays with its
    link until that was acted on: frames are read ahead, and the link may end in between. A message
    that can never be read is the exception: it is left held, and the log says so.

    Attributes:
        holder: What the store knows it by.
        queue: What it consumes.
        holdings: What it holds of that, to be settled.
        terminus: Our end of it, which may outlive this.
        credit: How many more messages it takes now.
    """

    _link: SenderLink

    def __init__(
        self,
        connection: Connection,
        link: SenderLink,
        queue: QueueDispatch,
        endpoint: LinkEndpoint,
        *,
        is_settled: bool,
        selector: Selector | None = None,
        resumed: ResumptionPlan | None = None,
    ) -> None:
        self._connection = connection
        super().__init__(link)
        self._broker, self._links = connection.broker, connection.links
        self.queue, self.terminus = queue, endpoint.terminus
        self.holder = link_text(self.terminus.key)
        self.holdings = self._broker.holdings(queue, self.holder, self._take_back)
        self._is_settled = is_settled
        self._selector = selector
        self._acquisitions = Acquisitions(self._undecided, self._give_back_acquired)
        self._retirements = Retirements(self, self._links)
        self._outlet = LinkOutlet(self, connection, link, self._acquisitions, is_settled=is_settled)
        self._delivery = self._outlet.delivery
        self._resumption = None if resumed is None else Resumption(self, connection, link, resumed)
        self.credit = 0
        self._is_let_go = self._is_refresh_due = False

    @property
    def is_draining(self) -> bool:
        """True while the client drains its credit. See `Consumer.is_draining`."""
        return self._link.is_draining

    def start(self) -> None:
        """Take a place at the queue."""
        self.queue.add(self, self._selector)
        if self._resumption is not None:
            self._resumption.start()
        self.on_flow()

    def gone(self) -> None:
        """End the endpoint: what it held is given back, or kept for its terminus."""
        super().gone()
        self.credit = 0
        # Off the queue first: it is handed nothing of what is given back below.
        self.queue.discard(self)
        self._outlet.gone()
        self.holdings.locks.close()
        held = {} if self._resumption is None else self._resumption.left()
        for run, taken in self._undecided():
            count = failed_count(self._connection, run)
            for at, (tag, message_id) in enumerate(zip(run.tags, taken.message_ids, strict=True)):
                held[tag] = Held(message_id, self.queue.name, at < count)
            self._let_go_of(run, taken)
        self._acquisitions.gone()
        self._links.end_holding(self.terminus, held, is_closed=self._link.is_closed_here)
        self._let_go()

    def _let_go(self) -> None:
        """Let all parts go once it has ended and nothing is under way; they hold it.

        Else each link that ends would be a cycle, which only Python's collector finds. Answers of
        the store and transactions that end later have the parts themselves, if they need them.
        """
        if not (self._is_let_go or self._delivery.count):
            self._is_let_go = True
            del self._outlet, self._acquisitions, self._retirements, self._resumption

    def queue_deleted(self) -> None:
        """End the link: what it held is given back, and goes with its queue."""
        self._connection.lose(self._link, conditions.queue_deleted(self.queue.name))

    def turned_away(self, reason: str) -> None:
        """End the link: another one has the queue alone."""
        self._connection.lose(self._link, conditions.Refusal(AmqpError.RESOURCE_LOCKED, reason))

    @property
    def _settled_room(self) -> int:
        """The number of deliveries that the peer may leave unsettled, besides those it has."""
        most = self._broker.settings.max_unsettled
        return most if self._is_settled else most - self._link.port.unsettled_count

    @property
    def _room(self) -> int:
        """The number of messages more that may be under way."""
        may_take = min(self._link.credit, _UNDER_WAY, self._settled_room)
        return 0 if self._delivery.is_full else may_take - self._delivery.count

    def wait_for_room(self) -> None:
        """Have `on_flow` called when there is room again."""
        self._connection.wait_for_room(self)

    def on_flow(self) -> None:
        """Act on credit, a drain, or room to write again."""
        if self.is_gone:
            return
        properties, self._link.flow_properties = self._link.flow_properties, None
        if properties is not None and not self._acquires_in(properties[_TXN_ID]):
            return
        if self._connection.room_bytes(self._link) < 0:
            self.credit = 0
            self.wait_for_room()
            return
        self._outlet.write()
        if self._resumption is not None:
            self._resumption.go_on(self._delivery, _TURN)
        if self._settled_room <= 0:
            self.wait_for_room()
        self.credit = max(0, min(_TURN, self._room))
        self._broker.wanted(self.queue.name)
        if self._link.is_draining:
            self._broker.dispatch()
            self.caught_up()
        elif self.credit == 1:
            self._broker.dispatch_at_once(self.queue)

    def _acquires_in(self, txn_id: Any) -> bool:
        """Acquire in the transaction that a flow named; False if the link ends for that."""
        try:
            transaction = None if txn_id is None else self._connection.transactions.find(txn_id)
        except TransactionRefused as refusal:
            self._connection.detach(self._link, conditions.refusal_of(refusal))
            return False
        if transaction is not None and self._is_settled:
            self._connection.detach(self._link, _SETTLED_WITHIN)
            return False
        self._acquisitions.begin(transaction)
        return True

    def assign(self, message_ids: Sequence[int]) -> int:
        """Take messages from the queue to their delivery, as far as there is room.

        See `Consumer.assign`.
        """
        count = self._delivery.take(message_ids)
        self.credit = 0 if self._delivery.is_full else self.credit - count
        if self.credit == 0 and self._room > 0:
            self._broker.later(0.0, self.on_flow)
        return count

    def refresh(self) -> None:
        """Take more well before all that is under way has come; a drain may be over."""
        if self.has_ended:
            self._let_go()
            return
        has_room = self._delivery.count <= _UNDER_WAY - _TURN // 2 or self._link.is_draining
        if has_room and not self._is_refresh_due:  # once, for all that comes in this turn
            self._is_refresh_due = True
            self._broker.before_dispatch(self._refresh)

    def _refresh(self) -> None:
        self._is_refresh_due = False
        self.on_flow()

    def sent(self, runs: Sequence[Run]) -> None:
        """Note deliveries that are on their way to the peer, or begin to be."""
        if not self._is_settled:
            self._acquisitions.sent(runs)

    def _undecided(self) -> list[tuple[Run, TakenRun]]:
        """List what is not decided about here, in the order in which it was sent."""
        return sorted(self._held(), key=lambda held: (held[0].number < 0, held[0].number))

    def _held(self) -> Iterator[tuple[Run, TakenRun]]:
        """Find the same in no order, so that who looks for one may stop there."""
        for run in self._link.runs:
            if run.held is not None and run.held.decision is None:
                yield run, run.held

    def on_dispositions(self, runs: Sequence[Run]) -> None:
        """Act on what the peer decided, or settled without a decision, which releases."""
        whole: list[tuple[Run, TakenRun]] = []
        is_sending = self._outlet.is_sending
        for run in runs:
            if (taken := run.held) is None:
                continue
            if taken.decision is not None:
                self._retirements.note_disposition(run)
            elif isinstance(run.remote_state, Accepted | Rejected) and not is_sending:
                whole.append((run, taken))
            else:
                self._decide(run, taken)
        for state, alike in groupby(whole, lambda decided: decided[0].remote_state):
            self._remove_all(state, [*alike])
        for run in runs:
            if run.held is None or run.held.decision is not None:
                self._link.acted_on(run)

    def _remove_all(self, state: Any, runs: Sequence[tuple[Run, TakenRun]]) -> None:
        """Take messages off their queue that the client accepted, or rejected, together."""
        decided = [DecidedRun(run.place, taken.message_ids) for run, taken in runs]
        if isinstance(state, Rejected):
            self._reject(decided, state)
        else:
            accept(self, self._links, decided)
        for run, taken in runs:  # last, as in `_decide`
            self._let_go_of(run, taken)

    def _let_go_of(self, run: Run, taken: TakenRun) -> None:
        run.held = None
        taken.release()

    def _decide(self, run: Run, taken: TakenRun) -> None:
        if isinstance(run.remote_state, TransactionalState):
            self._decided_within(run, taken)
            return
        self.holdings.locks.renew(taken.message_ids)  # it ends below, if this decides anything
        unnamed = OutgoingLink._released if run.is_settled else None
        decide = _DECISIONS.get(type(run.remote_state), unnamed)
        if decide is not None:
            if self._outlet.decided(run):
                decide = OutgoingLink._broken_off
            decide(self, DecidedRun(run.place, taken.message_ids), run.remote_state)
            # Last: until then its link has it, and gives it back if the decision fails.
            self._let_go_of(run, taken)

    def decided(self, run: Run, message_id: int) -> None:
        """Act on the outcome of a delivery that was sent on an earlier attachment."""
        state = run.remote_state
        _DECISIONS[type(state)](self, DecidedRun(run.place, (message_id,)), state)

    def _accepted(self, decided: DecidedRun, _state: Accepted) -> None:
        """Take accepted messages off their queue."""
        accept(self, self._links, [decided])

    def _rejected(self, decided: DecidedRun, state: Rejected) -> None:
        self._reject([decided], state)

    def _reject(self, decided: Sequence[DecidedRun], state: Rejected) -> None:
        """Reject messages: they go to the dead letters, or leave the store."""
        reject = partial(self.holdings.reject, self, rejection(state))
        end(self, self._links, decided, outcomes.REJECTED, reject)

    def _released(self, decided: DecidedRun, _state: object) -> None:
        """Give back messages that the client did not look at."""
        give_back = partial(self.holdings.give_back, failed=False)
        end(self, self._links, [decided], outcomes.RELEASED, give_back)

    def _modified(self, decided: DecidedRun, state: Modified) -> None:
        """Give back messages with the annotations that the client changed.

        The entry keeps them, as stored messages are immutable.
        """
        for message_id in decided.message_ids if state.undeliverable_here else ():
            self.queue.refuse(message_id, self)
        give_back = partial(self.holdings.give_back, failed=state.delivery_failed is True)
        calls, name = self._broker.calls, self.queue.name
        kept = [kept_of(calls, name, message_id, state) for message_id in decided.message_ids]
        for added, part in decided.parts(kept):
            carry_out = partial(give_back, annotations=added)
            end(self, self._links, [part], outcomes.MODIFIED, carry_out)

    def _broken_off(self, decided: DecidedRun, _state: object) -> None:
        """Give back a message that was decided about before all of it was sent.

        Whatever the client said, it cannot have used the message, and it counts as failed.
        """
        self.holdings.give_back(decided.message_ids, failed=True)

    def _decided_within(self, run: Run, taken: TakenRun) -> None:
        """Hand deliveries to the transaction that their client decided in."""
        try:
            transaction = self._connection.transactions.named_by(run.remote_state)
        except TransactionRefused as refusal:
            self._connection.detach(self._link, conditions.refusal_of(refusal))
            return
        if run.remote_state.outcome is None and not run.is_settled:
            return
        assert transaction is not None
        if self._outlet.decided(run):
            transaction.spoil("it was decided about a message before all of it was sent")
            self._broken_off(DecidedRun(run.place, taken.message_ids), None)
            self._let_go_of(run, taken)
        else:
            self._retirements.retire(transaction, run, taken)
        if self._acquisitions.is_of_another(taken, transaction):
            transaction.end_link(rolled_back("it decides about a delivery of another transaction"))

    def unsettle(self, taken: TakenRun) -> None:
        """Take deliveries back from a transaction that is undone: the peer decides again."""
        taken.decision = None
        self.holdings.locks.begin(taken.message_ids)

    def _take_back(self, message_id: int) -> None:
        """Give back a message whose lock is over, and tell the peer that its delivery failed.

        What the peer settled is acted on in this turn or the next, or goes with its link.
        """
        for run, taken in self._held():
            if message_id in taken.message_ids and (self._link.is_gone or not run.is_settled):
                part = self._link.part(run, taken.message_ids.index(message_id), 1)
                self._give_back_acquired(part, nobody)
                return

    def _give_back_acquired(self, run: Run, on_done: OnComplete) -> None:
        """Give back deliveries that their client has not decided about, as failed ones."""
        taken, run.held = run.held, None
        self._outlet.decided(run)  # what was not sent whole is broken off
        give_back = partial(self.holdings.give_back, failed=True)
        decided = DecidedRun(run.place, taken.message_ids)
        end(self, self._links, [decided], _FAILED, give_back, on_done)
        taken.release()

    def send_later(self, message_id: int, delay_s: float) -> None:
        """A message that it holds from before could not be sent again now."""
        assert self._resumption is not None
        self._resumption.send_later(Held(message_id, self.queue.name), delay_s)

    def confirm(self, places: Sequence[Place], state: object) -> None:
        """Settle deliveries with the outcome that the peer chose, now that it is durable."""
        if not self.is_gone:
            self._link.dispose(places, state)
            self._connection.has_output()
            if self._resumption is not None:
                self._resumption.end_if_worked_off()

    def caught_up(self) -> None:
        """End a drain, unless something is under way. See `Consumer.caught_up`.

        A drain without credit is over at once, and is answered as any: who asks for it waits.
        """
        if self.is_gone or not self._link.is_draining or self._delivery.count:
            return
        is_spent = self._link.credit <= 0 or self._settled_room <= 0
        if is_spent or self.queue.has_caught_up(self):
            self._link.drained()
            self.credit = 0
            self._connection.has_output()


_DECISIONS: Mapping[type, Callable[[OutgoingLink, DecidedRun, Any], None]] = {
    Accepted: OutgoingLink._accepted,  # noqa: SLF001  # a table of its own methods
    Rejected: OutgoingLink._rejected,  # noqa: SLF001
    Released: OutgoingLink._released,  # noqa: SLF001
    Modified: OutgoingLink._modified,  # noqa: SLF001
}
