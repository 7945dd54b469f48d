"""Define an operator's orders about a branch of a distributed transaction. Pure.

Its coordinator decides a branch. An operator does if that is gone for good, and a heuristic
decision, as X/Open calls it, may differ from what other resources were told. So it is remembered,
and written down with the operator's name.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple


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
