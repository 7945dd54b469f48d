"""SASL, the server's side: offer mechanisms, ask and answer until it is decided (5.3). Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from broker_shim.amqp_1_0.composites import (
    Composite,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
)
from broker_shim.amqp_1_0.definitions import AmqpError, SaslCode
from broker_shim.protocol_1_0.codec.errors import ProtocolViolation

MAX_STEPS = 8
"""Challenges of one exchange; the mechanisms here need one or two."""


@dataclass(frozen=True, slots=True)
class Challenge:
    """Ask the peer further; `user` is who it said it is, for the audit log."""

    challenge: bytes
    user: str = ""


@dataclass(frozen=True, slots=True)
class Passed:
    """The peer is who it says; `additional` goes with the outcome."""

    identity: str
    additional: bytes | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """A login that failed; `reason` is for the audit log, not for the peer."""

    reason: str


Answer = Challenge | Passed | Refused


class Mechanism(Protocol):
    """A SASL exchange with one peer."""

    def step(self, response: bytes | None) -> Answer:
        """Answer what the peer said; None if it said nothing, not even that it is empty."""


Mechanisms = Mapping[str, Callable[[], Mechanism]]
"""Name → a fresh exchange, in the order of preference."""


class SaslServer:
    """The way of one peer through SASL.

    Attributes:
        mechanism_name: What the peer asked for; "" until then.
        answer: The last one; decided once it is `Passed` or `Refused`.
    """

    def __init__(self, mechanisms: Mechanisms) -> None:
        self.mechanism_name = ""
        self.answer: Answer | None = None
        self._mechanisms = mechanisms
        self._mechanism: Mechanism | None = None
        self._steps_left = MAX_STEPS

    @property
    def given_up(self) -> Refused | None:
        """Return the refusal if the peer hangs up now; None if the login is over or not begun."""
        if not isinstance(self.answer, Challenge):
            return None
        return Refused(f"given up when it was asked, as {self.answer.user!r}")

    def offer(self) -> SaslMechanisms:
        """Return the frame with the mechanisms that the peer may choose from."""
        return SaslMechanisms(tuple(self._mechanisms))

    def receive(self, performative: Composite) -> SaslChallenge | SaslOutcome:
        """Answer a frame of the peer's.

        Raises:
            ProtocolViolation: It cannot come now.
        """
        if isinstance(performative, SaslInit) and self._mechanism is None:
            self.mechanism_name = performative.mechanism
            make = self._mechanisms.get(performative.mechanism)
            if make is None:
                return self._say(Refused("a mechanism that was not offered"))
            self._mechanism = make()
            return self._say(self._mechanism.step(performative.initial_response))
        if isinstance(performative, SaslResponse) and self._mechanism is not None:
            self._steps_left -= 1
            if not self._steps_left:
                return self._say(Refused("too many steps"))
            return self._say(self._mechanism.step(performative.response))
        text = f"{performative.NAME} at this point of SASL"
        raise ProtocolViolation(AmqpError.ILLEGAL_STATE, text)

    def _say(self, answer: Answer) -> SaslChallenge | SaslOutcome:
        self.answer = answer
        match answer:
            case Challenge(challenge):
                return SaslChallenge(challenge)
            case Passed(_, additional):
                return SaslOutcome(SaslCode.OK, additional)
            case Refused():
                return SaslOutcome(SaslCode.AUTH)
