"""What prepared branches keep others from, until somebody decides them (`branches`). Pure."""

from __future__ import annotations

from collections.abc import Callable

from sparkstore.core import fold
from sparkstore.core.durability import TerminusDurability
from sparkstore.core.queue_names import shown
from sparkstore.core.state_machine.links import LinkStateMachine
from sparkstore.core.state_machine.values import Exchange, Queue, RecordStep, Transaction
from sparkstore.errors import InvalidRequest


class DoubtStateMachine(LinkStateMachine):
    """The part of the state machine that knows of branches in doubt.

    Attributes:
        branches: The prepared transactions, by the text of their xid.
        in_doubt: The messages whose content such a branch has brought, and that branch's xid.
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
        self.in_doubt: dict[int, str] = {}

    def destroy(self, wiring: Queue | Exchange) -> list[RecordStep]:
        """A queue that a branch in doubt uses stays: what was prepared can be committed."""
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
