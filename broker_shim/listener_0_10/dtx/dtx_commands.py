"""dtx.select, start, end, prepare, commit, rollback, forget, recover, get-timeout, set-timeout."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from broker_shim.amqp_0_10 import commands as c
from broker_shim.amqp_0_10.definitions import DtxXaStatus
from broker_shim.amqp_0_10.structs import (
    DtxGetTimeoutResult,
    DtxRecoverResult,
    DtxXaResult,
    DtxXid,
)
from broker_shim.broker.orders.prepared_branches import Branches
from broker_shim.broker.wiring.address import QueueNode
from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.framing.errors import RemoteCommandError
from broker_shim.listener_0_10.dtx.branch_begin import BranchBegin
from broker_shim.listener_0_10.open_branches import OpenBranch, OpenBranches
from broker_shim.listener_0_10.refusals import (
    illegal_argument,
    illegal_state,
    not_allowed,
    not_found,
    not_implemented,
    refusal_of,
)
from broker_shim.listener_0_10.sessions.authorization import check, check_anywhere, may
from broker_shim.listener_0_10.sessions.session import Amqp010Session
from broker_shim.security.rules.rights import Act
from broker_shim.store.branch_store import BranchFacts, Xid
from sparkstore.core.state_machine.heuristics import COMMITTED, ROLLED_BACK
from sparkstore.core.xids import check_xid, xid_text

_HEURISTIC = {COMMITTED: DtxXaStatus.XA_HEURCOM, ROLLED_BACK: DtxXaStatus.XA_HEURRB}
"""What an operator decided, as a coordinator is told."""


def _select(session: Amqp010Session, _command: c.DtxSelect, command_id: int) -> None:
    if session.transaction is not None or session.is_distributed:
        raise illegal_state("dtx.select: this session is transacted already")
    check_anywhere(session, "transactions")
    if not _prepared(session).is_served:
        raise not_implemented("dtx.select: this store has no two-phase transactions: tx.select")
    session.is_distributed = True
    session.complete(command_id)


def _start(session: Amqp010Session, command: c.DtxStart, command_id: int) -> None:
    if not session.is_distributed:
        raise illegal_state("dtx.start before dtx.select")
    if session.transaction is not None:
        raise illegal_state("dtx.start: this session works in a branch already: end that first")
    xid = _xid(command.xid)
    branch = _there(session, command, xid)
    if branch is not None:
        _work_in(session, branch, command_id)
        return

    def begun(branch: OpenBranch) -> None:
        _work_in(session, branch, command_id)

    BranchBegin(session, xid, command_id, begun).run()


def _there(session: Amqp010Session, command: c.DtxStart, xid: Xid) -> OpenBranch | None:
    """The open branch that a session is to join or resume; None: it begins one."""
    if command.join and command.resume:
        raise not_allowed("dtx.start: join and resume at once")
    branch = _opened(session).find(xid)
    if command.join:
        if branch is None or branch.user != session.key[0]:
            raise not_allowed(f"there is no branch {xid_text(xid)} to join")
        return branch
    if command.resume and (branch is None or session not in branch.suspended):
        raise illegal_state(f"branch {xid_text(xid)} is not suspended in this session")
    return branch if command.resume else None


def _work_in(session: Amqp010Session, branch: OpenBranch, command_id: int) -> None:
    if not branch.has_failed and not branch.is_deciding:
        branch.suspended.discard(session)
        _opened(session).work(session, branch)
        branch.active.add(session)
        session.transaction = branch.transaction
    _answer(session, command_id, _status_of(branch))


def _end(session: Amqp010Session, command: c.DtxEnd, command_id: int) -> None:
    if command.fail and command.suspend:
        raise not_allowed("dtx.end: fail and suspend at once")
    xid = _xid(command.xid)
    branch = _opened(session).find(xid)
    if branch is None or session not in branch.active | branch.suspended:
        raise illegal_state(f"this session does not work in branch {xid_text(xid)}")
    if session in branch.active:
        session.transaction = None
    branch.active.discard(session)
    branch.suspended.discard(session)
    if command.suspend:
        branch.suspended.add(session)
    if command.fail:
        branch.fail()
    _answer(session, command_id, _status_of(branch))


def _prepare(session: Amqp010Session, command: c.DtxPrepare, command_id: int) -> None:
    xid = _xid(command.xid)

    def prepare(prepared_one: BranchFacts | None) -> None:
        if prepared_one is not None:
            raise illegal_state(f"branch {xid_text(xid)} is prepared already")
        branch = _idle(session, xid)
        if branch.has_failed or branch.transaction.is_empty:
            _ended(session, branch, command_id, DtxXaStatus.XA_RDONLY)
            return

        def prepared(error: StoreError | None) -> None:
            _opened(session).forget(branch)
            _done(session, command_id, error)

        _begin_deciding(session, branch, command_id)
        branch.transaction.prepare(partial(_prepared(session).prepare, xid), prepared)

    _look(session, command, command_id, xid, prepare)


def _commit(session: Amqp010Session, command: c.DtxCommit, command_id: int) -> None:
    xid = _xid(command.xid)
    text = xid_text(xid)

    def commit(branch: BranchFacts | None) -> None:
        if branch is None:
            _commit_at_once(session, command, command_id)
        elif branch.state in _HEURISTIC:
            _answer(session, command_id, _HEURISTIC[branch.state])
        elif command.one_phase:
            raise illegal_state(f"branch {text} is prepared: commit it without one-phase")
        else:
            _decide(session, command_id, _prepared(session).commit, branch)

    _look(session, command, command_id, xid, commit)


def _commit_at_once(session: Amqp010Session, command: c.DtxCommit, command_id: int) -> None:
    """Commit a branch that is not prepared."""
    xid = _xid(command.xid)
    branch = _idle(session, xid)
    if not command.one_phase:
        text = f"branch {xid_text(xid)} is not prepared: prepare it, or say one-phase"
        raise illegal_state(text)
    if branch.has_failed:
        _ended(session, branch, command_id, DtxXaStatus.XA_OK)
        return

    def committed(error: StoreError | None) -> None:
        _opened(session).forget(branch)
        _done(session, command_id, error)

    _begin_deciding(session, branch, command_id)
    branch.transaction.commit(committed)


def _begin_deciding(session: Amqp010Session, branch: OpenBranch, command_id: int) -> None:
    """The store is asked about a branch; the session's next commands wait for its answer."""
    branch.is_deciding = True
    session.wait_for(command_id)


def _rollback(session: Amqp010Session, command: c.DtxRollback, command_id: int) -> None:
    xid = _xid(command.xid)

    def roll_back(prepared: BranchFacts | None) -> None:
        if prepared is not None and prepared.state in _HEURISTIC:
            _answer(session, command_id, _HEURISTIC[prepared.state])
            return
        if prepared is not None:
            _decide(session, command_id, _prepared(session).roll_back, prepared)
            return
        branch = _idle(session, xid)
        _opened(session).forget(branch)
        branch.fail()
        late = DtxXaStatus.XA_RBTIMEOUT
        _answer(session, command_id, late if branch.is_late else DtxXaStatus.XA_OK)

    _look(session, command, command_id, xid, roll_back)


def _decide(session: Amqp010Session, command_id: int, decide: Any, branch: BranchFacts) -> None:
    finished = session.done(command_id)

    def decided(error: StoreError | None) -> None:
        if error is None:
            _answer(session, command_id, DtxXaStatus.XA_OK)
        else:  # in doubt still, or somebody else was faster: not a rollback
            finished(error)

    decide(branch, decided)


def _forget(session: Amqp010Session, command: c.DtxForget, command_id: int) -> None:
    """The coordinator knows what an operator decided; nothing else is ever to be forgotten."""
    xid = _xid(command.xid)

    def forget(branch: BranchFacts | None) -> None:
        if branch is not None and branch.state in _HEURISTIC:
            _prepared(session).forget(branch, session.done(command_id))
            return
        if branch is None:
            _of_user(session, xid)
        raise illegal_state(f"branch {xid_text(xid)} was not decided: commit it, or roll it back")

    _look(session, command, command_id, xid, forget)


def _get_timeout(session: Amqp010Session, command: c.DtxGetTimeout, command_id: int) -> None:
    branch = _of_user(session, _xid(command.xid))
    timeout_s = branch.timeout_s or int(_opened(session).most_s)
    session.result(command_id, DtxGetTimeoutResult(timeout_s))


def _set_timeout(session: Amqp010Session, command: c.DtxSetTimeout, command_id: int) -> None:
    branch = _of_user(session, _xid(command.xid))
    _opened(session).set_timeout(branch, command.timeout)
    session.complete(command_id)


def _recover(session: Amqp010Session, command: c.DtxRecover, command_id: int) -> None:
    """The branches in doubt that this user may decide."""

    def tell(branches: Sequence[BranchFacts]) -> None:
        xids = [
            DtxXid(*branch.xid)
            for branch in branches
            if all(_may(session, *needed) for needed in _needed(branch))
        ]
        session.result(command_id, DtxRecoverResult(tuple(xids)))

    _ask(session, command, command_id, None, tell)


def _look(
    session: Amqp010Session,
    command: c.Command,
    command_id: int,
    xid: Xid,
    go_on: Callable[[BranchFacts | None], None],
) -> None:
    """Go on with a prepared branch; None: it is not prepared.

    A branch that is open here is not. Of any other the store is asked, which may be elsewhere. A
    user who may not do what the branch does is refused.
    """
    if _opened(session).find(xid) is not None:
        go_on(None)
        return

    def decide_next(branches: Sequence[BranchFacts]) -> None:
        for act, queue in _needed(branches[0]) if branches else ():
            _check_known(session, xid, act, queue)
        go_on(branches[0] if branches else None)

    _ask(session, command, command_id, xid, decide_next)


def _ask(
    session: Amqp010Session,
    command: c.Command,
    command_id: int,
    xid: Xid | None,
    go_on: Callable[[Sequence[BranchFacts]], None],
) -> None:
    """Go on when the store has told of branches; the session's next commands wait until then."""

    def answered(error: StoreError | None, branches: Sequence[BranchFacts]) -> None:
        if session.is_over:
            return
        try:
            if error is not None:
                raise refusal_of(error)
            go_on(branches)
        except RemoteCommandError as reason:
            reason.method_code = reason.method_code or type(command).CODE
            session.fail(reason, command_id)

    session.wait_for(command_id)
    _prepared(session).find(xid, answered)


def _needed(branch: BranchFacts) -> set[tuple[Act, str]]:
    puts = {(Act.SEND, queue) for queue in branch.puts}
    return puts | {(Act.RECEIVE, queue) for queue in branch.takes}


def _check_known(session: Amqp010Session, xid: Xid, act: Act, queue: str) -> None:
    """Check that a user may do what a prepared branch does; to others it is not there.

    Raises:
        RemoteCommandError: It may not; the audit log was told what.
    """
    try:
        check(session, act, QueueNode(queue), queue)
    except RemoteCommandError as reason:
        raise _no_branch(xid) from reason


def _no_branch(xid: Xid) -> RemoteCommandError:
    return not_found(f"there is no branch {xid_text(xid)}")


def _may(session: Amqp010Session, act: Act, queue: str) -> bool:
    return may(session, act, QueueNode(queue))


def _xid(given: DtxXid) -> Xid:
    try:
        return check_xid(Xid(int(given.format), bytes(given.global_id), bytes(given.branch_id)))
    except InvalidRequest as reason:
        raise illegal_argument(str(reason)) from reason


def _prepared(session: Amqp010Session) -> Branches:
    return session.connection.host.in_doubt


def _opened(session: Amqp010Session) -> OpenBranches:
    return session.connection.host.branches


def _of_user(session: Amqp010Session, xid: Xid) -> OpenBranch:
    branch = _opened(session).find(xid)
    if branch is None or branch.user != session.key[0]:
        raise _no_branch(xid)
    return branch


def _idle(session: Amqp010Session, xid: Xid) -> OpenBranch:
    branch = _of_user(session, xid)
    if branch.is_deciding:
        text = "is being prepared or ended by another session: wait for its answer, then recover"
        raise illegal_state(f"branch {xid_text(xid)} {text}")
    if branch.active or branch.suspended:
        raise illegal_state(f"branch {xid_text(xid)} has not ended: dtx.end comes first")
    return branch


def _status_of(branch: OpenBranch) -> DtxXaStatus:
    if branch.is_late:
        return DtxXaStatus.XA_RBTIMEOUT
    return DtxXaStatus.XA_RBROLLBACK if branch.has_failed else DtxXaStatus.XA_OK


def _ended(
    session: Amqp010Session, branch: OpenBranch, command_id: int, status: DtxXaStatus
) -> None:
    """A branch with nothing to do ends; one that failed says so."""
    _opened(session).forget(branch)
    _answer(session, command_id, _status_of(branch) if branch.has_failed else status)


def _done(session: Amqp010Session, command_id: int, error: StoreError | None) -> None:
    """Answer a command: what the store refused was undone, so its status is a rollback."""
    if error is None:
        _answer(session, command_id, DtxXaStatus.XA_OK)
    elif isinstance(error, InvalidRequest):
        _answer(session, command_id, DtxXaStatus.XA_RBROLLBACK)
    elif not session.is_over:
        session.fail(refusal_of(error), command_id)


def _answer(session: Amqp010Session, command_id: int, status: DtxXaStatus) -> None:
    session.result(command_id, DtxXaResult(status))


STEPS: Mapping[type, Callable[[Any, Any, int], None]] = {
    c.DtxSelect: _select,
    c.DtxStart: _start,
    c.DtxEnd: _end,
    c.DtxPrepare: _prepare,
    c.DtxCommit: _commit,
    c.DtxRollback: _rollback,
    c.DtxForget: _forget,
    c.DtxRecover: _recover,
    c.DtxGetTimeout: _get_timeout,
    c.DtxSetTimeout: _set_timeout,
}
