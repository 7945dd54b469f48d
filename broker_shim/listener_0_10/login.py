"""SASL over AMQP 0-10: start-ok, secure and secure-ok, by the mechanisms of the guard."""

from __future__ import annotations

from dataclasses import dataclass

from broker_shim.amqp_0_10.controls import ConnectionSecureOk, ConnectionStartOk
from broker_shim.protocol_1_0.sasl.exchange import (
    MAX_STEPS,
    Challenge,
    Mechanism,
    Mechanisms,
    Passed,
    Refused,
)
from broker_shim.sockets.login import Login


@dataclass(frozen=True, slots=True)
class SaslDecision:
    """The end of SASL: who the peer is, or why it is nobody."""

    mechanism: str
    identity: str = ""
    reason: str = ""


class SaslExchange:
    """One peer's way through SASL. It logs in, or its failure is counted and the answer waits."""

    def __init__(self, mechanisms: Mechanisms, login: Login) -> None:
        self._mechanisms, self._login = mechanisms, login
        self._mechanism: Mechanism | None = None
        self._name = ""
        self._user = ""
        self._passed: Passed | None = None
        self._steps_left = MAX_STEPS
        self.is_decided = False

    @property
    def names(self) -> tuple[str, ...]:
        """The mechanisms that the peer may choose from."""
        return tuple(self._mechanisms)

    @property
    def given_up(self) -> SaslDecision | None:
        """Decide a login whose peer is gone; None if it was decided, or had not begun."""
        if self._mechanism is None or self.is_decided:
            return None
        return SaslDecision(self._name, reason=f"given up when it was asked, as {self._user!r}")

    def step(self, control: ConnectionStartOk | ConnectionSecureOk) -> bytes | bool:
        """Answer the peer by a challenge; True if it is in, False if it is not."""
        if isinstance(control, ConnectionStartOk):
            self._name = control.mechanism
            make = self._mechanisms.get(control.mechanism)
            if make is None:
                return self._failed("a mechanism that was not offered")
            self._mechanism = make()
        elif self._passed is not None:  # it has seen what proves that we know its password, too
            return self._in(self._passed)
        assert self._mechanism is not None
        self._steps_left -= 1
        too_many = Refused("too many steps")
        answer = self._mechanism.step(control.response) if self._steps_left else too_many
        if isinstance(answer, Challenge):
            self._user = answer.user
            return answer.challenge
        if isinstance(answer, Refused):
            return self._failed(answer.reason)
        self._passed = answer if answer.additional else None
        return answer.additional or self._in(answer)

    def _in(self, answer: Passed) -> bool:
        self.is_decided = True
        self._login.passed(SaslDecision(self._name, answer.identity))
        return True

    def _failed(self, reason: str) -> bool:
        self.is_decided = True
        self._login.failed(SaslDecision(self._name, reason=reason))
        return False
