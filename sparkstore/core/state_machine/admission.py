"""Decides whether a message may be put on a queue, and how: for every road that enqueues. Pure.

A single call, a batch, a frame of a member's requests, a transaction and a prepared branch all ask
`Admission.admit`. Whoever asks has seen that the queue is there, and that the message may be put on
it; what is decided here is what the queue makes of it:

* whether it is kept, by the durability of both, and whether the disk has room for it (`room`);
* whether the queue has room for it (`QueueArguments.why_full`);
* when it expires (`QueueArguments.expires_at`);
* which record says so, and whether that brings the content.

Why a limit holds for a frame of many: they are decided before any of them is applied, so an
`Admission` counts what it has admitted. It lives no longer than the state that it was made on.
What a prepared branch has promised to a queue counts, too: its commit cannot be refused any more.

Decision: a limit is for new messages. A message that is on a queue already may move to a full one:
a dead letter, what an administrator moves, what is routed on when its queue is deleted. Refused,
it would stay where it may not be, and be handed out again. Senders are refused until enough is
gone. Neither is a Broker-J host refused, for the reason that `room` gives.
"""

from __future__ import annotations

from collections.abc import Set

from sparkstore.core.entries import Entries
from sparkstore.core.queue_arguments import QueueArguments
from sparkstore.core.queue_names import shown
from sparkstore.core.records import Kind, MessageHeader, Record
from sparkstore.core.state_machine.room import RoomStateMachine
from sparkstore.core.state_machine.sole_host import sole_host
from sparkstore.core.state_machine.values import PlannedEnqueue, RecordStep, StoredMessage
from sparkstore.errors import Full, InvalidRequest

_new = tuple.__new__  # a NamedTuple's own constructor is a call of Python for each


class Admission:
    """Decides about messages in their order, each with those before it in view.

    Attributes:
        steps: What was decided so far; who decides something else in between may add to it.
        taken: Entries (queue, message id) that the same transaction dequeues.
        brought: Messages whose content comes with an earlier step of the same transaction.
    """

    def __init__(
        self,
        machine: RoomStateMachine,
        number: int | None = None,
        taken: Set[tuple[str, int]] = frozenset(),
        *,
        is_promised: bool = False,
    ) -> None:
        """Begin with nothing.

        Args:
            machine: Of the store; its state may not change until the steps are applied.
            number: Of the transaction, if it is one.
            taken: Entries that the transaction dequeues.
            is_promised: They are of a branch that was prepared: nothing of it may be refused.
        """
        self._machine, self._number, self._is_promised = machine, number, is_promised
        self._now_us = machine.now_us()
        self._added: dict[str, tuple[int, int]] = {}
        self.steps: list[RecordStep] = []
        self.taken = taken
        self.brought: set[int] = set()

    def admit(
        self,
        message: StoredMessage,
        queue: str,
        detail: str | None = None,
        member: str | None = None,
        request: int | None = None,
        *,
        is_logged: bool = False,
    ) -> None:
        """Put a message on a queue: add the steps that do it.

        Args:
            message: With its content, unless that was staged or is in the log.
            queue: Name of the queue, which is there.
            detail: What the entry adds to the message's annotations.
            member: Who asked, of a store service.
            request: The number of its request.
            is_logged: The log has header and content of the message.

        Raises:
            Full: There is no room for it; no step was added.
            InvalidRequest: It was staged, and the queue does not keep it.
        """
        message_id, header, body, is_staged = message
        machine = self._machine
        is_kept, arguments, asks = machine.terms[queue]
        is_kept = is_kept and header.durable
        if is_staged and not is_kept and not is_logged:
            refusal = f"queue {queue!r} is transient: stage the message with durable=False"
            raise InvalidRequest(refusal)
        if machine.held_back and is_kept and not is_logged:
            # What is staged is on the disk, as are the messages of a branch that was promised.
            machine.check_room(is_new=message_id not in machine.state.staged)
        if asks:
            self._count(queue, arguments, message_id, header)
            header = header._replace(
                expires_at=arguments.expires_at(header.expires_at, self._now_us)
            )
        if is_logged:
            header = header.known()
        brings = is_kept and not is_logged and not is_staged
        fields = (Kind.ENQUEUED, self._now_us, queue, message_id, None, None, self._number, header)
        rest = (None, None, None, detail, member, request, None)
        record = _new(Record, (*fields, body if brings else None, *rest))
        self.steps.append(_new(RecordStep, (record, is_kept, message)))

    def _count(
        self, queue: str, arguments: QueueArguments, message_id: int, header: MessageHeader
    ) -> None:
        """Count a message that comes to a queue with limits.

        Raises:
            Full: There is no room for it.
        """
        entries = self._machine.state.queues[queue].entries
        count, byte_count = self._added.get(queue) or self._promised(queue, entries)
        count, byte_count = count + 1, byte_count + header.header_bytes + header.body_bytes
        why = arguments.why_full(len(entries) + count, entries.message_bytes + byte_count)
        if why is not None and self._may_be_refused(message_id):
            self._machine.on_full(queue)
            message = f"queue {shown(queue)} is full ({why}): nothing was done, send again when"
            message += " messages have left it"
            raise Full(message)
        self._added[queue] = count, byte_count

    def _may_be_refused(self, message_id: int) -> bool:
        is_new = message_id not in self._machine.state.messages
        return is_new and not self._is_promised and sole_host(self._machine.state) is None

    def _promised(self, queue: str, entries: Entries) -> tuple[int, int]:
        """How many messages, and bytes, branches in doubt will put there, less what we take off."""
        headers = [
            planned.message.header
            for branch in self._machine.branches.values()
            for planned in branch.steps
            if isinstance(planned, PlannedEnqueue) and planned.queue == queue
        ]
        off = [entries.get(message_id) for name, message_id in self.taken if name == queue]
        gone = [entry.message_bytes for entry in off if entry is not None]
        comes = [header.header_bytes + header.body_bytes for header in headers]
        return len(comes) - len(gone), sum(comes) - sum(gone)
