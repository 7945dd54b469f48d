"""Find the time since which a holder is there, as far as the store's records know it. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping

from sparkstore.core.fold import State
from sparkstore.core.xids import branch_holder

OWN_CATEGORY = "sparkstore."
"""Begins categories of configured objects: of those that the store service alone writes."""
MEMBER_CATEGORY = OWN_CATEGORY + "member"
"""Of configured objects, one for each member of a store service, by its name."""


def since_by_holder(state: State) -> dict[str, int]:
    """UTC µs since when members of the service and branches in doubt are there.

    The key of a member is its name, before the first `/` of a holder; that of a branch is all of
    one (`xids.branch_holder`). A member that only older versions knew is not there.
    """
    since: dict[str, int] = {
        branch_holder(key): json.loads(fields)["since_us"] for key, fields in state.prepared.items()
    }
    for (category, member), detail in state.configured.items():
        fields = json.loads(detail) if category == MEMBER_CATEGORY else {}
        if "since_us" in fields:
            since[member] = fields["since_us"]
    return since


def since_of(holder: str, since: Mapping[str, int]) -> int | None:
    """UTC µs since when a holder is there; None for one that is neither member nor branch."""
    return since.get(holder, since.get(holder.partition("/")[0]))
