"""An administrator's orders about connections: list them, and close one.

A store service asks the brokers that are its members, too: each answers by this class of its own
process, over the connection that it has to the service.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from broker_shim.errors import InvalidRequest, StoreError, Unavailable
from broker_shim.members.inquiries import Inquiries, MemberAnswers
from broker_shim.serve.administration.control_orders import Asker, Call
from broker_shim.sockets.served_connection import ServedConnection
from sparkstore.control.audit import Audit, AuditEvent
from sparkstore.operations import wire

_CLOSED_BY = "an administrator ended the connection"
_CLOSE, _CONNECTIONS, _MEMBER, _BY = "close", "connections", "member", "by"


class ConnectionOrders:
    """Carries out what is asked about connections. On the loop's thread only."""

    def __init__(
        self,
        connections: Callable[[], Iterable[ServedConnection]],
        audit: Audit,
        members: Inquiries | None = None,
    ) -> None:
        """Answer for the connections of one process.

        Args:
            connections: The connections of this process, now.
            audit: Takes a line for each connection that is ended.
            members: Asks the brokers that are members; None: this process serves none.
        """
        self._connections, self._audit, self._members = connections, audit, members

    def call(self, content: dict[str, Any]) -> Call | None:
        """Choose the call that a line about connections asks for; None if it is about others.

        Raises:
            InvalidRequest: It is not well formed.
        """
        if _CONNECTIONS in content:
            return self._tell
        if _CLOSE not in content:
            return None
        number = wire.number_of(content, _CLOSE)
        if content.get(_MEMBER) is not None:
            return partial(self._close_at, wire.text_of(content, _MEMBER), number)
        return partial(self._close, number)

    def answer(self, question: str, answer: Callable[[str], None]) -> None:
        """Answer the store service, which asks for an administrator, as a broker alone would."""

        def say(line: bytes) -> None:
            answer(line.decode())

        try:
            content = wire.content_of(question.encode())
            call = self.call(content)
            if call is None:
                raise InvalidRequest("a member knows its connections, and nothing else")
        except StoreError as refusal:
            say(wire.error_line(refusal))
        else:
            name = f"{content.get(_BY, 'an administrator')}, by the store service"
            call(Asker(name, say, say, lambda: True))

    def _tell(self, asker: Asker) -> None:
        here = sorted(self._connections(), key=lambda each: each.number)
        rows = [_told(each) for each in here]

        def tell(answers: MemberAnswers) -> None:
            for member, told in sorted(answers.by_member.items()):
                rows.extend({**each, _MEMBER: member} for each in told.get(_CONNECTIONS, ()))
            asker.answer(wire.line({_CONNECTIONS: rows, "silent": sorted(answers.silent)}))

        if self._members is None:
            asker.answer(wire.line({_CONNECTIONS: rows}))
        else:
            self._members.ask({_CONNECTIONS: True}, tell)

    def _close(self, number: int, asker: Asker) -> None:
        found = next((each for each in self._connections() if each.number == number), None)
        if found is None:
            text = f"there is no connection {number}: see sparkstore connections"
            self._closed(asker, number, {}, InvalidRequest(text))
            return
        told = _told(found)
        found.close_forced(_CLOSED_BY)
        self._closed(asker, number, told, None)

    def _closed(
        self, asker: Asker, number: int, told: dict[str, Any], error: StoreError | None
    ) -> None:
        self._audit(
            AuditEvent.ADMINISTRATION,
            peer=asker.name,
            act="close-connection",
            connection=number,
            member=told.get(_MEMBER),
            user=told.get("user"),
            remote=told.get("peer"),
            by=asker.user,
            error=error,
        )
        closed = {"act": "close-connection", **told, "changed": True}
        asker.answer(wire.told_line(closed) if error is None else wire.error_line(error))

    def _close_at(self, member: str, number: int, asker: Asker) -> None:
        """End a connection of a member: it does so itself."""

        def closed(answers: MemberAnswers) -> None:
            said = answers.by_member.get(member)
            if said is None:
                text = f"member {member!r} did not answer: look whether the connection is there"
                error: StoreError = Unavailable(text)
                if not answers.silent:
                    text = f"there is no member {member!r} connected: see sparkstore connections"
                    error = InvalidRequest(text)
                self._closed(asker, number, {_MEMBER: member}, error)
                return
            try:
                told = wire.object_of(said, "told")
            except StoreError as error:
                self._closed(asker, number, {_MEMBER: member}, error)
            else:
                self._closed(asker, number, {**told, _MEMBER: member}, None)

        if self._members is None:
            text = "this process has no members: leave --member out"
            asker.answer(wire.error_line(InvalidRequest(text)))
        else:
            question = {_CLOSE: number, _BY: asker.name}
            self._members.ask(question, closed, member)


def _told(connection: ServedConnection) -> dict[str, Any]:
    remote = connection.access.remote
    return {
        "connection": connection.number,
        "peer": f"{remote.host}:{remote.port}",
        "user": connection.login.principal.name,
        "tls": remote.tls,
        "container": connection.container_id,
        "links": connection.link_count,
        "connected_at": connection.began_at_us,
        "open": connection.is_open and not connection.is_closed,
    }
