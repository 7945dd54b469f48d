"""Define an operator's orders about a branch of a distributed transaction. Pure.

Its coordinator decides a branch. An operator does if that is gone for good, and a heuristic
decision, as X/Open calls it, may differ from what other resources were told. So it is remembered,
and written down with the operator's name.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple

from sparkstore.core.xids import xid_of
from sparkstore.errors import InvalidRequest

_MOST_CHARACTERS = 200


class BranchAct(StrEnum):
    """The actions on a branch, in the words of the audit log."""

    COMMIT = "commit-branch"
    ROLL_BACK = "rollback-branch"
    FORGET = "forget-branch"


class BranchOrder(NamedTuple):
    """An order about one branch.

    Attributes:
        act: What is to be done.
        xid: The branch, as `xid_text` writes it.
        by: Name of the operator.
    """

    act: BranchAct
    xid: str
    by: str

    def answer(self) -> dict[str, Any]:
        """Return the answer to the operator who gave the order."""
        return {"act": self.act, "xid": self.xid, "by": self.by, "changed": True}


def branch_order_of(content: dict[str, Any]) -> BranchOrder:
    """Read an order that came over the control socket.

    Raises:
        InvalidRequest: It is none.
    """
    act, xid, by = (content.get(name) for name in ("branch", "xid", "by"))
    if (
        not isinstance(act, str)
        or act not in [*BranchAct]
        or not isinstance(xid, str)
        or not isinstance(by, str)
    ):
        message = f"an order about a branch needs xid, by, and one of {', '.join(BranchAct)}"
        raise InvalidRequest(message)
    if not 0 < len(by) <= _MOST_CHARACTERS:
        message = f"the name of an operator has 1 to {_MOST_CHARACTERS} characters"
        raise InvalidRequest(message)
    xid_of(xid)
    return BranchOrder(BranchAct(act), xid, by)
