"""Plan a redrive: which dead letters go back to which queue, and which cannot. Pure.

A dead letter's entry says where it came from (`core.annotations`). What has no such annotation
never died, and what came from a queue that is gone, or that would not keep it, has nowhere to go:
both stay. The store decides each message anew (`bulk`), and takes only what its origin has room
for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sparkstore.core.annotations import origin_of
from sparkstore.core.fold import QueueState
from sparkstore.core.queue_arguments import terms_of
from sparkstore.operations.bulk import Room
from sparkstore.operations.entry_runs import EntryRun, runs_of


@dataclass
class RedrivePlan:
    """The fate of chosen messages; ids are in the order of their queue.

    Attributes:
        portions: The messages for each queue that they go to, by its name.
        full: The same of those for which it has no room, as far as is known now.
        lost: Messages by the name of an origin that is gone, or keeps no messages.
        strays: Messages that came from no queue: they are no dead letters.
    """

    portions: dict[str, list[int]] = field(default_factory=dict)
    full: dict[str, list[int]] = field(default_factory=dict)
    lost: dict[str, list[int]] = field(default_factory=dict)
    strays: list[int] = field(default_factory=list)
    _rooms: dict[str, Room] = field(default_factory=dict)

    def extend(
        self,
        queues: Mapping[str, QueueState],
        queue: str,
        message_ids: Iterable[int],
        to: str | None,
    ) -> None:
        """Decide where chosen messages of a queue go, after those that were decided before.

        Args:
            queues: All queues of the root.
            queue: Name of the queue of the dead letters.
            message_ids: The chosen messages, in the order of the queue; those that are not on it
                any more are left out.
            to: Name of the queue that all of them go to; None: each goes back to its origin.
        """
        state = queues.get(queue)
        for run in () if state is None else runs_of(state.entries, [*message_ids]):
            self._place(queues, run, to or _origin(queue, run.detail))

    def _place(self, queues: Mapping[str, QueueState], run: EntryRun, target: str | None) -> None:
        queue, ids = queues.get(target or ""), run.message_ids
        if target is None:
            self.strays += ids
        elif queue is None or not (terms := terms_of(queue.detail)).keeps_messages:
            self.lost.setdefault(target, []).extend(ids)
        else:
            if target not in self._rooms:
                depth, byte_count = len(queue.entries), queue.entries.message_bytes
                self._rooms[target] = Room(terms.arguments, depth, byte_count)
            fits = self._rooms[target].fitting(run.message_bytes)
            for fates, some in ((self.portions, ids[:fits]), (self.full, ids[fits:])):
                if some:
                    fates.setdefault(target, []).extend(some)


def _origin(queue: str, detail: str | None) -> str | None:
    """Return where messages of a queue came from; None if they have nowhere to go back to."""
    origin = origin_of(detail)
    return None if origin == queue else origin
