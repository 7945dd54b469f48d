"""An administrator's questions to brokers that are members, through the service they share.

Members have no control socket, as they have no root. So the service sends the question on to those
that are connected, as ASKED, and each answers by TOLD. The question and the answer are objects of
JSON, as `serve.administration.connection_orders` has them.

A member that does not answer in `ANSWER_S` is named as silent: an administrator learns that
something was not seen, and waits for nobody.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.store import protocol as wire

if TYPE_CHECKING:
    from broker_shim.service.member_connection import MemberConnection

_log = logging.getLogger(__name__)

ANSWER_S = 2.0


class MemberAnswers(NamedTuple):
    """The answers of members to one question of an administrator.

    Attributes:
        by_member: The answer of each, as the object of a line.
        silent: Members that are connected and did not answer in time.
    """

    by_member: dict[str, dict[str, Any]]
    silent: list[str]


OnAnswers = Callable[[MemberAnswers], None]


class _Inquiry(NamedTuple):
    waiting: set[MemberConnection]
    answers: MemberAnswers
    on_answers: OnAnswers


class Inquiries:
    """The questions that members have not all answered. On the loop's thread only."""

    def __init__(
        self, peers: Collection[MemberConnection], broker: Callable[[], ServedQueues]
    ) -> None:
        """Begin without any question under way.

        Args:
            peers: Connections of members that watch; a live view.
            broker: Gives the broker that decides for them, whose timers are used.
        """
        self._peers, self._broker = peers, broker
        self._numbers = count(1)
        self._open: dict[int, _Inquiry] = {}

    def ask(
        self, question: dict[str, Any], on_answers: OnAnswers, member: str | None = None
    ) -> None:
        """Ask members; `on_answers` is called once, at the latest after `ANSWER_S`.

        Args:
            question: The object that is sent as JSON.
            on_answers: Gets what they answered, perhaps at once.
            member: Ask this one alone; None: all that are connected.
        """
        peers = [peer for peer in self._peers if member is None or peer.member == member]
        number = next(self._numbers)
        self._open[number] = _Inquiry({*peers}, MemberAnswers({}, []), on_answers)
        text = json.dumps(question)
        for peer in peers:
            peer.say(wire.ASKED, (number, text))
        if peers:
            self._broker().later(ANSWER_S, lambda: self._end(number))
        else:
            self._end(number)

    def answered(self, peer: MemberConnection, number: int, text: str) -> None:
        """Take a member's answer; one that nobody waits for any more is passed over."""
        inquiry = self._open.get(number)
        if inquiry is None or peer not in inquiry.waiting:
            return
        inquiry.waiting.discard(peer)
        try:
            answer = json.loads(text)
        except ValueError:
            answer = None
        if isinstance(answer, dict):
            inquiry.answers.by_member[peer.member] = answer
        else:
            inquiry.answers.silent.append(peer.member)
            _log.warning("member %r answered an administrator with no object", peer.member)
        if not inquiry.waiting:
            self._end(number)

    def left(self, peer: MemberConnection) -> None:
        """Wait no more for a connection that ended."""
        for number, inquiry in [*self._open.items()]:
            if peer in inquiry.waiting:
                inquiry.waiting.discard(peer)
                inquiry.answers.silent.append(peer.member)
                if not inquiry.waiting:
                    self._end(number)

    def _end(self, number: int) -> None:
        inquiry = self._open.pop(number, None)
        if inquiry is not None:
            inquiry.answers.silent.extend(peer.member for peer in inquiry.waiting)
            inquiry.on_answers(inquiry.answers)
