"""Refuse what a prepared branch forbids until it is decided (`branches`). Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sparkstore.core import fold
from sparkstore.core.durability import TerminusDurability
from sparkstore.core.queue_names import shown
from sparkstore.core.records import Kind, Run
from sparkstore.core.state_machine.call_values import (
    Exchange,
    Queue,
    RecordStep,
    StoredMessage,
    Transaction,
    arrivals_in,
)
from sparkstore.core.state_machine.link_state_machine import LinkStateMachine
from sparkstore.errors import InvalidRequest


class InDoubtStateMachine(LinkStateMachine):
    """The part of the state machine that knows of branches in doubt.

    Attributes:
        branches: The prepared transactions, by the text of their xid.
        in_doubt: The new messages that such a branch has, and that branch's xid.
        promised: Where such a branch will put messages that it moves (queue, message id).
    """

    def __init__(
        self,
        state: fold.State,
        durability: TerminusDurability,
        now_us: Callable[[], int],
        link_durability: TerminusDurability | None = None,
    ) -> None:
        super().__init__(state, durability, now_us, link_durability)
        self.branches: dict[str, Transaction] = {}
        self.claims: dict[tuple[str, int], Transaction] = {}
        self.in_doubt: dict[int, str] = {}
        self.promised: dict[tuple[str, int], str] = {}

    def destroy(self, wiring: Queue | Exchange) -> list[RecordStep]:
        """Destroy a queue, unless a branch in doubt uses it: what was prepared can be committed."""
        steps = super().destroy(wiring)
        if isinstance(wiring, Queue):
            for key, branch in self.branches.items():
                if wiring.name in branch.queues:
                    used = f"queue {shown(wiring.name)} is used by the prepared branch {key}"
                    refusal = f"{used}: commit or roll that back first"
                    raise InvalidRequest(refusal)
        return steps

    def check_free(self, message_id: int) -> None:
        """Raises InvalidRequest if a message waits for a prepared branch to be decided."""
        key = self.in_doubt.get(message_id)
        if key is not None:
            whose = f"message {message_id} belongs to the prepared branch {key}"
            refusal = f"{whose}: commit or roll that back first"
            raise InvalidRequest(refusal)

    def check_place(self, queue: str, message_id: int) -> None:
        """Raises InvalidRequest if a prepared branch will put a message on this queue."""
        self.check_free(message_id)
        key = self.promised.get((queue, message_id))
        if key is not None:
            what = f"message {message_id} is moved to queue {shown(queue)}"
            refusal = f"{what} by the prepared branch {key}: commit or roll that back first"
            raise InvalidRequest(refusal)

    def claim(self, run: Run, transaction: Transaction, holder: str | None) -> None:
        """Have a transaction claim the entries of a run, which `holder` has for it from now on."""
        queue = run.record.queue
        assert queue is not None
        places = [(queue, message_id) for message_id in run.message_ids]
        self.claims.update(dict.fromkeys(places, transaction))
        transaction.claims.update(dict.fromkeys(places, holder))
        if run.record.kind is Kind.DEQUEUED:
            transaction.taken.update(places)
        transaction.queues.setdefault(queue, self.state.queues[queue])
        transaction.steps.append(run)

    @contextmanager
    def own_in_doubt(self) -> Iterator[None]:
        """Let steps within use what branches in doubt hold: one of them is being decided."""
        in_doubt, promised = self.in_doubt, self.promised
        self.in_doubt, self.promised = {}, {}
        try:
            yield
        finally:
            self.in_doubt, self.promised = in_doubt, promised

    def brought_by(self, key: str) -> list[int]:
        """List the new messages of a branch in doubt, in the order of its calls."""
        ids = dict.fromkeys(message.message_id for _queue, message in self._enqueues(key))
        return [message_id for message_id in ids if self.in_doubt.get(message_id) == key]

    def decided(self, key: str) -> None:
        """Note that a branch is decided: its messages are free.

        It looks at those of this branch alone: a publication decides many branches.
        """
        for message_id in self.brought_by(key):
            del self.in_doubt[message_id]
        for queue, message in self._enqueues(key):
            place = queue, message.message_id
            if self.promised.get(place) == key:
                del self.promised[place]

    def _enqueues(self, key: str) -> Iterator[tuple[str, StoredMessage]]:
        return arrivals_in(self.branches[key].steps)
