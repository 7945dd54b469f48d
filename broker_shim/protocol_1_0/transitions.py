"""List the transitions: state × step → state; a step that is not listed is an error.

Steps end in `_RECEIVED` if the peer takes them, else they are ours. States are named as in the
specification (2.4.6, 2.5.5, 2.6) where it has a name.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from broker_shim.amqp_1_0.definitions import AmqpError
from broker_shim.protocol_1_0.codec.errors import InvalidCommand, ProtocolViolation, Scope


class GreetingState(StrEnum):
    """States of a connection before its first AMQP frame."""

    START = "waiting for a protocol header"
    SASL = "within SASL"
    SASL_PASSED = "waiting for the header after SASL"
    SASL_REFUSED = "refused by SASL"
    DONE = "past the protocol headers"


class GreetingStep(StrEnum):
    """The steps of a greeting."""

    SASL_HEADER_RECEIVED = "a SASL header"
    AMQP_HEADER_RECEIVED = "an AMQP header"
    SASL_PASSED = "SASL success"
    SASL_REFUSED = "SASL failure"


class ConnectionState(StrEnum):
    """States of a connection after the greeting."""

    HEADERS_EXCHANGED = "not open"
    OPEN_RECEIVED = "opened by the peer"
    OPENED = "opened"
    CLOSE_SENT = "closed by us"
    CLOSE_RECEIVED = "closed by the peer"
    END = "over"


class ConnectionStep(StrEnum):
    """The steps of a connection."""

    OPEN_RECEIVED = "open"
    OPEN_SENT = "to open"
    SESSION_FRAME_RECEIVED = "a frame of a session"
    CLOSE_RECEIVED = "close"
    CLOSE_SENT = "to close"


class EndpointState(StrEnum):
    """States of a session or a link; each is begun by the peer and answered by us."""

    BEGUN = "begun by the peer"
    ACTIVE = "begun by both"
    END_SENT = "ended by us"
    END_RECEIVED = "ended by the peer"
    ENDED = "ended"


class EndpointStep(StrEnum):
    """The steps of a session or a link."""

    ANSWER_SENT = "to answer"
    USED = "to use"
    END_SENT = "to end"
    END_RECEIVED = "the end"


_G, _GS = GreetingState, GreetingStep

GREETING: Mapping[GreetingState, Mapping[GreetingStep, GreetingState]] = {
    _G.START: {
        _GS.SASL_HEADER_RECEIVED: _G.SASL,
        _GS.AMQP_HEADER_RECEIVED: _G.DONE,
    },
    _G.SASL: {_GS.SASL_PASSED: _G.SASL_PASSED, _GS.SASL_REFUSED: _G.SASL_REFUSED},
    _G.SASL_PASSED: {_GS.AMQP_HEADER_RECEIVED: _G.DONE},
    _G.SASL_REFUSED: {},
    _G.DONE: {},
}

_C, _CS = ConnectionState, ConnectionStep

CONNECTION: Mapping[ConnectionState, Mapping[ConnectionStep, ConnectionState]] = {
    _C.HEADERS_EXCHANGED: {
        _CS.OPEN_RECEIVED: _C.OPEN_RECEIVED,
        _CS.CLOSE_SENT: _C.CLOSE_SENT,
    },
    _C.OPEN_RECEIVED: {
        _CS.OPEN_SENT: _C.OPENED,
        # A peer need not wait for our open before it goes on (2.4.2).
        _CS.SESSION_FRAME_RECEIVED: _C.OPEN_RECEIVED,
        _CS.CLOSE_RECEIVED: _C.CLOSE_RECEIVED,
        _CS.CLOSE_SENT: _C.CLOSE_SENT,
    },
    _C.OPENED: {
        _CS.SESSION_FRAME_RECEIVED: _C.OPENED,
        _CS.CLOSE_RECEIVED: _C.CLOSE_RECEIVED,
        _CS.CLOSE_SENT: _C.CLOSE_SENT,
    },
    # What the peer sent before it saw our close is read past (2.4.6, DISCARDING).
    _C.CLOSE_SENT: {
        _CS.OPEN_RECEIVED: _C.CLOSE_SENT,
        _CS.SESSION_FRAME_RECEIVED: _C.CLOSE_SENT,
        _CS.CLOSE_RECEIVED: _C.END,
    },
    _C.CLOSE_RECEIVED: {_CS.CLOSE_SENT: _C.END},
    _C.END: {},
}

_E, _ES = EndpointState, EndpointStep

ENDPOINT: Mapping[EndpointState, Mapping[EndpointStep, EndpointState]] = {
    _E.BEGUN: {_ES.ANSWER_SENT: _E.ACTIVE, _ES.END_RECEIVED: _E.END_RECEIVED},
    _E.ACTIVE: {
        _ES.USED: _E.ACTIVE,
        _ES.END_SENT: _E.END_SENT,
        _ES.END_RECEIVED: _E.END_RECEIVED,
    },
    _E.END_SENT: {_ES.END_RECEIVED: _E.ENDED},
    _E.END_RECEIVED: {_ES.END_SENT: _E.ENDED},
    _E.ENDED: {},
}

State = TypeVar("State", bound=StrEnum)
Step = TypeVar("Step", bound=StrEnum)


def after_received(
    table: Mapping[State, Mapping[Step, State]], state: State, step: Step, scope: Scope
) -> State:
    """Return the state after a step of the peer's.

    Raises:
        ProtocolViolation: illegal-state: the table does not list it.
    """
    following = table[state].get(step)
    if following is None:
        message = f"{step} on a {scope.value} that is {state}"
        raise ProtocolViolation(AmqpError.ILLEGAL_STATE, message, scope)
    return following


def after_sent(table: Mapping[State, Mapping[Step, State]], state: State, step: Step) -> State:
    """Return the state after a step of ours.

    Raises:
        InvalidCommand: The table does not list it.
    """
    following = table[state].get(step)
    if following is None:
        message = f"cannot {step.removeprefix('to ')} what is {state}"
        raise InvalidCommand(message)
    return following
