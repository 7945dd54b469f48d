"""How many queues and exchanges one user may have had made: one rule for every protocol and road.

A queue costs memory in this process, records in the journal and a place in every list, whether
anything is on it or not. So who may make some must not make them without end. What counts is what
there is now, of what the user had made since this process started: who made a queue is not in its
definition, so what was there before is nobody's. What administrators order, what the settings
name, and what the broker needs itself (dead letters) is nobody's, too.

Users are told apart by their names, not by their connections: coming again gains nothing. All
anonymous clients are one user.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.completion import OnComplete
from broker_shim.errors import LimitReached, StoreError
from sparkstore.core.queue_names import shown

_log = logging.getLogger(__name__)

_QUIET_S = 60.0
"""After a line of the log, refusals are only counted for so long: a flood writes no flood."""


class CreatedEntity(NamedTuple):
    """A queue or an exchange that a user had made.

    Attributes:
        name: The name of the queue or exchange.
        is_exchange: True of an exchange.
    """

    name: str
    is_exchange: bool = False


class WiringLimit:
    """The queues and exchanges that each user had made. On the loop's thread only.

    What is gone is noticed when its maker has no room: a queue may go by many ways, and none of
    them need say so here. So nobody is refused for what is gone, and of each user no more names
    are kept than the limit.
    """

    def __init__(self, served: ServedQueues) -> None:
        self._served = served
        self._of_user: dict[str, set[CreatedEntity]] = {}
        self._makers: dict[CreatedEntity, str] = {}
        self._under_way: set[CreatedEntity] = set()
        self._refused: Counter[str] = Counter()
        self._is_quiet = False

    def check(self, user: str, made: CreatedEntity, on_done: OnComplete) -> None:
        """Tell whether there is room for what is to be made later; nothing is kept for it.

        Args:
            user: The name of the user who asks for it.
            made: The queue or exchange.
            on_done: Told `LimitReached` if there is none.
        """
        on_done(self._refusal(user, made))

    def make(
        self,
        user: str,
        made: CreatedEntity,
        make: Callable[[OnComplete], None],
        on_done: OnComplete,
    ) -> None:
        """Have a queue or exchange made for a user, unless it has as many as it may.

        What is there, or is being made for somebody else, costs whoever had it made first.

        Args:
            user: The name of the user who asks for it.
            made: The queue or exchange.
            make: Makes it; called at once, or not at all.
            on_done: Told when it is there, or why it is not.
        """
        refusal = self._refusal(user, made)
        if refusal is not None:
            on_done(refusal)
            return
        if self._is_there(made):
            make(on_done)
            return
        self._forget(made)  # of whom it was when it was there before
        self._makers[made] = user
        self._of_user.setdefault(user, set()).add(made)
        self._under_way.add(made)

        def done(error: StoreError | None) -> None:
            self._under_way.discard(made)
            if error is not None:
                self._forget(made)
            on_done(error)

        make(done)

    def _forget(self, made: CreatedEntity) -> None:
        maker = self._makers.pop(made, None)
        if maker is not None:
            self._of_user[maker].discard(made)

    def _refusal(self, user: str, made: CreatedEntity) -> LimitReached | None:
        most = self._served.settings.max_queues_per_user
        if self._count(user, most) < most or self._is_there(made):
            return None
        self._served.metrics.refused_queues += 1
        self._refused[user] += 1
        if not self._is_quiet:
            self._tell()
        text = f"{shown(user)} has had {most} queues and exchanges made: delete some"
        text += ", or have unused ones that attaching made go sooner"
        return LimitReached(f"{text} ([broker] max_queues_per_user, unused_queue_s)")

    def _count(self, user: str, most: int) -> int:
        of_user = self._of_user.get(user, set())
        if len(of_user) >= most:
            for made in [entity for entity in of_user if not self._is_there(entity)]:
                self._forget(made)
        return len(of_user)

    def _is_there(self, made: CreatedEntity) -> bool:
        router = self._served.router
        is_known = made.name in (router if made.is_exchange else self._served.queues)
        return is_known or made in self._under_way

    def _tell(self) -> None:
        """Write down what was refused since the last line, then be quiet for a while."""
        self._is_quiet = bool(self._refused)
        if self._is_quiet:
            users = ", ".join(f"{shown(user)} ({n})" for user, n in self._refused.most_common(5))
            text = "no queue or exchange was made for users who have max_queues_per_user: %s"
            _log.warning(text, users)
            self._refused.clear()
            self._served.later(_QUIET_S, self._tell)
