"""Each control of a session → what it does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from broker_shim.amqp_0_10.controls import (
    Control,
    SessionAttach,
    SessionCommandPoint,
    SessionCompleted,
    SessionConfirmed,
    SessionDetach,
    SessionDetached,
    SessionExpected,
    SessionFlush,
    SessionGap,
    SessionKnownCompleted,
    SessionRequestTimeout,
    SessionTimeout,
)
from broker_shim.amqp_0_10.definitions import SessionDetachCode
from broker_shim.framing.sequences import Ranges, distance, is_ordered

if TYPE_CHECKING:
    from broker_shim.listener_0_10.sessions.session import Amqp010Session

_MOST_TIMEOUT_S = 300


def invoke(session: Amqp010Session, control: Control) -> None:
    """Do what a control says; one that says nothing to a broker does nothing."""
    step = _STEPS.get(type(control))
    if step is not None:
        step(session, control)


def say_expected(session: Amqp010Session) -> None:
    """Tell the client which command comes next."""
    ahead = session.incoming.next_id
    session.say(SessionExpected(((ahead, ahead),)))


def _attach(session: Amqp010Session, control: SessionAttach) -> None:
    """Refuse an attach of a channel that has a session already."""
    session.say(SessionDetached(control.name, SessionDetachCode.TRANSPORT_BUSY))


def _detach(session: Amqp010Session, control: SessionDetach) -> None:
    if control.name != session.name:
        session.say(SessionDetached(control.name, SessionDetachCode.NOT_ATTACHED))
        return
    session.say(SessionDetached(control.name, SessionDetachCode.NORMAL))
    session.part()


def _detached(session: Amqp010Session, _control: SessionDetached) -> None:
    session.part()


def _request_timeout(session: Amqp010Session, control: SessionRequestTimeout) -> None:
    asked_s = _MOST_TIMEOUT_S if control.timeout is None else control.timeout
    session.timeout_s = min(asked_s, _MOST_TIMEOUT_S)
    session.outgoing.keep(is_keeping=session.timeout_s > 0)
    session.say(SessionTimeout(session.timeout_s))


def _command_point(session: Amqp010Session, control: SessionCommandPoint) -> None:
    if control.command_offset or not session.incoming.start_at(control.command_id):
        session.end(SessionDetachCode.UNKNOWN_IDS)


def _expected(session: Amqp010Session, control: SessionExpected) -> None:
    """The client of a session that was resumed says what it has not: send that again."""
    if not session.is_behind:
        return
    commands = control.commands
    if not commands or distance(commands[0][0], session.outgoing.next_id) < 0:
        session.end(SessionDetachCode.UNKNOWN_IDS)
        return
    session.is_behind = False
    lost, again = session.outgoing.since(commands[0][0])
    if lost:
        session.say(SessionGap(lost))
    for command in again:
        session.send(command)
    session.subscriptions.go_on()


def _confirmed(session: Amqp010Session, control: SessionConfirmed) -> None:
    _has_taken_in(session, control.commands or ())


def _completed(session: Amqp010Session, control: SessionCompleted) -> None:
    ranges = control.commands or ()
    if _has_taken_in(session, ranges):
        session.subscriptions.completed(ranges)
        if control.timely_reply:
            session.say(SessionKnownCompleted(ranges))


def _has_taken_in(session: Amqp010Session, ranges: Ranges) -> bool:
    """The client has some commands; False if it cannot, and the session ended."""
    if not is_ordered(ranges) or not session.outgoing.is_sent(ranges):
        session.end(SessionDetachCode.UNKNOWN_IDS)
        return False
    had_room = session.outgoing.has_room
    session.outgoing.taken_in(ranges)
    if not had_room and session.outgoing.has_room:
        session.subscriptions.go_on()
    return True


def _known_completed(session: Amqp010Session, control: SessionKnownCompleted) -> None:
    ranges = control.commands or ()
    if is_ordered(ranges):
        session.incoming.known(ranges)
    else:
        session.end(SessionDetachCode.UNKNOWN_IDS)


def _flush(session: Amqp010Session, control: SessionFlush) -> None:
    if control.completed:
        session.tell_all()
    if control.confirmed:
        session.say(SessionConfirmed(session.incoming.newly_complete()))
    if control.expected:
        say_expected(session)


def _gap(session: Amqp010Session, control: SessionGap) -> None:
    ranges = control.commands or ()
    if is_ordered(ranges) and session.incoming.skip(ranges):
        session.tell_all()
    else:
        session.end(SessionDetachCode.UNKNOWN_IDS)


_STEPS: Mapping[type, Callable[[Amqp010Session, Any], None]] = {
    SessionAttach: _attach,
    SessionDetach: _detach,
    SessionDetached: _detached,
    SessionRequestTimeout: _request_timeout,
    SessionCommandPoint: _command_point,
    SessionExpected: _expected,
    SessionConfirmed: _confirmed,
    SessionCompleted: _completed,
    SessionKnownCompleted: _known_completed,
    SessionFlush: _flush,
    SessionGap: _gap,
}
