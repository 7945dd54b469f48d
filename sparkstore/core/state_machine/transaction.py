"""What a call did, as steps; and what an open transaction has done so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from sparkstore.core import fold
from sparkstore.core.annotations import Annotations
from sparkstore.core.records import Record
from sparkstore.core.state_machine.values import StoredMessage


class RecordStep(NamedTuple):
    """One record that a call makes true.

    Attributes:
        record: The record that `apply` folds into the state.
        is_kept: It goes to the log; else it is true in memory only.
        message: In `enqueued`: whose content it is.
    """

    record: Record
    is_kept: bool
    message: StoredMessage | None = None


class PlannedEnqueue(NamedTuple):
    """An enqueue that waits for the commit; only then it is known who brings the content."""

    message: StoredMessage
    queue: str
    annotations: Annotations | None = None


@dataclass(slots=True, eq=False)
class Transaction:
    """A local transaction (`TransactionContext`).

    Attributes:
        transaction: The number of the transaction, which its records share.
        owner: The state machine that it belongs to.
        steps: In call order.
        claims: Entries by (queue, message id) that nobody else gets until the end, and who holds
            each as the transaction sees it.
        taken: The claimed entries that it dequeues.
        given_back: Delivery count and `detail` of the claimed entries that it released.
        queues: Those it uses, as they were: one that was destroyed and created anew is another.
        is_open: False after commit or abort.
        is_refused: An operation in it was refused, so it cannot be committed.
    """

    transaction: int
    owner: object
    steps: list[PlannedEnqueue | Record] = field(default_factory=list)
    claims: dict[tuple[str, int], str | None] = field(default_factory=dict)
    taken: set[tuple[str, int]] = field(default_factory=set)
    given_back: dict[tuple[str, int], tuple[int, str | None]] = field(default_factory=dict)
    queues: dict[str, fold.QueueState] = field(default_factory=dict)
    is_open: bool = True
    is_refused: bool = False
