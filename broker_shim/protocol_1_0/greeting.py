"""Greet a peer before the first AMQP frame: protocol headers, and SASL between them (2.2, 5.3)."""

from __future__ import annotations

from collections.abc import Callable

from broker_shim.amqp_1_0.definitions import MIN_MAX_FRAME_SIZE, AmqpError
from broker_shim.amqp_1_0.definitions import ConnectionError as Condition
from broker_shim.protocol_1_0.codec.composites import read_performative
from broker_shim.protocol_1_0.codec.errors import ProtocolViolation, Scope
from broker_shim.protocol_1_0.codec.frames import (
    AMQP_HEADER,
    SASL_FRAME,
    SASL_HEADER,
    FrameDecoder,
    ProtocolHeader,
)
from broker_shim.protocol_1_0.events import Authenticated, AuthenticationFailed, Event
from broker_shim.protocol_1_0.output import Output
from broker_shim.protocol_1_0.sasl.exchange import Mechanisms, Passed, Refused, SaslServer
from broker_shim.protocol_1_0.transitions import (
    GREETING,
    GreetingState,
    GreetingStep,
    after_received,
)


class Greeting:
    """Answers a peer until both know that they speak AMQP, and who the peer is."""

    def __init__(
        self,
        decoder: FrameDecoder,
        output: Output,
        tell: Callable[[Event], None],
        mechanisms: Mechanisms,
        *,
        requires_sasl: bool,
    ) -> None:
        self._decoder = decoder
        self._output = output
        self._tell = tell
        self._requires_sasl = requires_sasl
        self._sasl = SaslServer(mechanisms)
        self._state = GreetingState.START
        self._max_frame_bytes = decoder.max_frame_bytes
        decoder.max_frame_bytes = MIN_MAX_FRAME_SIZE  # nothing was agreed yet (5.3.1)

    @property
    def is_done(self) -> bool:
        """True once AMQP frames follow."""
        return self._state is GreetingState.DONE

    @property
    def is_refused(self) -> bool:
        """True once SASL failed: the peer was told, and that was all."""
        return self._state is GreetingState.SASL_REFUSED

    @property
    def given_up(self) -> AuthenticationFailed | None:
        """Return the failed login of a peer that hung up after it began to log in; None if none."""
        refused = self._sasl.given_up
        if refused is None:
            return None
        return AuthenticationFailed(self._sasl.mechanism_name, refused.reason)

    def advance(self) -> bool:
        """Take one header or frame; False while there is none, or none is wanted.

        Raises:
            ProtocolViolation: It is not what has to come now. A peer that speaks another version
                was answered with ours.
        """
        if self._state is GreetingState.SASL:
            return self._advance_sasl()
        if self.is_done or self.is_refused:
            return False
        try:
            header = self._decoder.next_header()
            if header is None:
                return False
            self._greet(header)
        except ProtocolViolation:
            self._output.write((SASL_HEADER if self._requires_sasl else AMQP_HEADER).encoded())
            raise
        return True

    def _greet(self, header: ProtocolHeader) -> None:
        if header == SASL_HEADER:
            self._step(GreetingStep.SASL_HEADER_RECEIVED)
            self._output.write(SASL_HEADER.encoded())
            self._output.frame(self._sasl.offer(), kind=SASL_FRAME)
            return
        if header != AMQP_HEADER:
            text = f"protocol {header.protocol_id}, version {header.major}.{header.minor}"
            raise ProtocolViolation(Condition.FRAMING_ERROR, text + ": AMQP 1.0 is spoken here")
        if self._requires_sasl and self._state is GreetingState.START:
            raise ProtocolViolation(AmqpError.UNAUTHORIZED_ACCESS, "authenticate by SASL first")
        self._step(GreetingStep.AMQP_HEADER_RECEIVED)
        self._decoder.max_frame_bytes = self._max_frame_bytes
        self._output.write(AMQP_HEADER.encoded())

    def _advance_sasl(self) -> bool:
        frame = self._decoder.next_frame()
        if frame is None:
            return False
        if frame.kind != SASL_FRAME:
            raise ProtocolViolation(Condition.FRAMING_ERROR, "not a SASL frame, within SASL")
        performative, _ = read_performative(frame.encoded, frame.start, frame.end)
        self._output.frame(self._sasl.receive(performative), kind=SASL_FRAME)
        match self._sasl.answer:
            case Passed(identity, _):
                self._step(GreetingStep.SASL_PASSED)
                self._tell(Authenticated(self._sasl.mechanism_name, identity))
            case Refused(reason):
                self._step(GreetingStep.SASL_REFUSED)
                self._tell(AuthenticationFailed(self._sasl.mechanism_name, reason))
        return True

    def _step(self, step: GreetingStep) -> None:
        self._state = after_received(GREETING, self._state, step, Scope.CONNECTION)
