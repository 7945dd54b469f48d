"""dtx.start of a branch that is not there: other brokers are asked, then the store, then it begins.

In this order: a branch of this xid at another broker is begun there until it is prepared, and then
the store knows it. So one of the two says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker_shim.amqp_0_10 import commands as c
from broker_shim.amqp_0_10.definitions import ExecutionErrorCode
from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.framing.errors import RemoteCommandError
from broker_shim.listener_0_10.open_branches import OpenBranch
from broker_shim.listener_0_10.refusals import not_allowed, refusal_of
from broker_shim.listener_0_10.sessions.session import Amqp010Session
from broker_shim.listener_0_10.transaction import SessionTransaction
from broker_shim.store.branch_store import BranchFacts, Xid
from sparkstore.core.xids import xid_text

_MOST_OPEN = 1_000
"""Open branches of one user."""


class BranchBegin:
    """A branch from its command until it is open, or its session has ended."""

    def __init__(
        self,
        session: Amqp010Session,
        xid: Xid,
        command_id: int,
        on_begun: Callable[[OpenBranch], None],
    ) -> None:
        """Prepare to begin a branch, which `on_begun` gets."""
        self._session, self._xid, self._command_id = session, xid, command_id
        self._on_begun = on_begun
        self._opened = session.connection.host.branches

    def run(self) -> None:
        """Ask who may have begun it; the session's next commands wait until that is decided.

        Raises:
            RemoteCommandError: The branch was begun at this broker.
        """
        self._session.wait_for(self._command_id)
        if not self._opened.begin(self._xid, self._claimed):
            raise self._is_there()

    def _is_there(self) -> RemoteCommandError:
        return not_allowed(f"xid {xid_text(self._xid)} is that of a branch already: give another")

    def _claimed(self, error: StoreError | None) -> None:
        if isinstance(error, InvalidRequest):
            self._refuse(not_allowed(str(error)))
        elif error is not None or self._session.is_over:
            self._refuse(None if error is None else refusal_of(error))
        else:
            self._session.connection.host.in_doubt.find(self._xid, self._found)

    def _found(self, error: StoreError | None, branches: Sequence[BranchFacts]) -> None:
        user, _name = self._session.key
        if error is not None or self._session.is_over:
            self._refuse(None if error is None else refusal_of(error))
        elif branches:
            self._refuse(self._is_there())
        elif self._opened.count_of(user) >= _MOST_OPEN:
            text = f"more than {_MOST_OPEN} branches of one user are open: end some"
            self._refuse(RemoteCommandError(ExecutionErrorCode.RESOURCE_LIMIT_EXCEEDED, text))
        else:
            transaction = SessionTransaction(self._session.broker, gives_back=True)
            self._opened.add(branch := OpenBranch(self._xid, user, transaction))
            self._on_begun(branch)

    def _refuse(self, error: RemoteCommandError | None) -> None:
        """Give up a branch that is not begun, and fail its session.

        Without an error the session has ended.
        """
        self._opened.not_begun(self._xid)
        if error is not None:
            error.method_code = c.DtxStart.CODE
            self._session.fail(error, self._command_id)
