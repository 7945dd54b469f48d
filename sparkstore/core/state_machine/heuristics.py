"""Branches that an operator decided, remembered until their coordinator knows. Pure.

X/Open calls such a decision heuristic. A coordinator that decides the same is told that it is done,
and that is the end of it; one that decides otherwise is told what was done, until it says that it
forgets the branch. Remembered is a configured object, which all folds keep already.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from sparkstore.core import fold, records
from sparkstore.core.state_machine.call_values import RecordStep
from sparkstore.errors import InvalidRequest

CATEGORY = "sparkstore.heuristic"
COMMITTED, ROLLED_BACK = "heuristically committed", "heuristically rolled back"


class HeuristicDecision(NamedTuple):
    """An operator's decision about a branch in doubt.

    Attributes:
        state: `COMMITTED` or `ROLLED_BACK`.
        by: Name of the operator who decided.
        since_us: When, UTC µs.
        puts: Names of the queues that a commit put messages on.
        takes: Names of the queues that it took messages off.
    """

    state: str
    by: str
    since_us: int
    puts: list[str]
    takes: list[str]


def heuristics(state: fold.State) -> dict[str, HeuristicDecision]:
    """Read the remembered decisions, by the text of the xid."""
    return {
        key: HeuristicDecision(**json.loads(detail))
        for (category, key), detail in state.configured.items()
        if category == CATEGORY
    }


def heuristic_of(state: fold.State, key: str) -> HeuristicDecision | None:
    """Find the remembered decision about a branch."""
    detail = state.configured.get((CATEGORY, key))
    return None if detail is None else HeuristicDecision(**json.loads(detail))


def decided_otherwise(key: str, decision: HeuristicDecision) -> InvalidRequest:
    """Say that a branch was decided otherwise, or already."""
    message = (
        f"branch {key} was {decision.state} by {decision.by}: its coordinator can only forget it"
    )
    return InvalidRequest(message)


def remembered(key: str, decision: HeuristicDecision, *, is_kept: bool) -> RecordStep:
    """The step that remembers a decision."""
    detail = json.dumps(decision._asdict(), sort_keys=True)
    return RecordStep(records.configured(decision.since_us, CATEGORY, key, detail), is_kept)


def forgotten(now_us: int, key: str, *, is_kept: bool) -> RecordStep:
    """The step that forgets one."""
    return RecordStep(records.unconfigured(now_us, CATEGORY, key), is_kept)
