"""An administrator's orders about connections: list them, and close one.

A store service asks the brokers that are its members, too: each answers by this class of its own
process, over the connection that it has to the service (`members.inquiries`):

    {"connections": true}                  {"connections": [{"connection": 7, "peer": "…", …}]}
    {"links": 7, "limit": 100}             {"links": {"rows": [{"name": "…", …}], "left_out": 0}}
    {"close": 7, "by": "…"}                {"told": {"act": "close-connection", …}}
                                           {"error": "InvalidRequest", "message": "…"}   instead
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, NamedTuple

from broker_shim.errors import InvalidRequest, StoreError, Unavailable
from broker_shim.members.inquiries import Inquiries, MemberAnswers
from broker_shim.sockets.served_connection import ServedConnection
from sparkstore.control.audit import Audit, AuditEvent
from sparkstore.errors import error_of

_CLOSED_BY = "an administrator ended the connection"
_CLOSE, _CONNECTIONS, _MEMBER, _BY, _CLOSED = "close", "connections", "member", "by", "told"
_LINKS, _LIMIT, _MOST_LINKS = "links", "limit", 1000
_UNKNOWN = "a member knows its connections, and nothing else"
"""Answers a question that is not known; one of an older release answers so what it has not."""


class ConnectionRows(NamedTuple):
    """The clients that are connected, those of members too; `silent` members did not answer."""

    rows: list[dict[str, Any]]
    silent: list[str]


class LinkRows(NamedTuple):
    """The first links of a connection; `left_out` more are."""

    rows: list[dict[str, Any]]
    left_out: int


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

    def rows(self, answer: Callable[[ConnectionRows], None]) -> None:
        """Answer with all connections, when all members have answered, or had their time."""
        rows = self._rows_here()

        def answered(answers: MemberAnswers) -> None:
            for member, content in sorted(answers.by_member.items()):
                rows.extend({**row, _MEMBER: member} for row in content.get(_CONNECTIONS, ()))
            answer(ConnectionRows(rows, sorted(answers.silent)))

        if self._members is None:
            answer(ConnectionRows(rows, []))
        else:
            self._members.ask({_CONNECTIONS: True}, answered)

    def links(
        self,
        number: int,
        member: str | None,
        limit: int,
        answer: Callable[[LinkRows | StoreError], None],
    ) -> None:
        """Answer with so many links of a connection, here or at a member, or with the error."""
        if member is None:
            answer(self._links_here(number, limit))
        elif self._members is None:
            answer(InvalidRequest("this process has no members: leave member out"))
        else:
            question = {_LINKS: number, _LIMIT: limit}
            self._members.ask(question, lambda answers: answer(_links(member, answers)), member)

    def close(
        self,
        number: int,
        member: str | None,
        by: tuple[str, str | None],
        answer: Callable[[dict[str, Any] | StoreError], None],
    ) -> None:
        """End a connection, here or at a member; answer with what it was, or with the error.

        Args:
            number: The number that its process gave it.
            member: The member that has it; None: this process.
            by: The peer and the user who ask.
            answer: Gets the answer, once.
        """

        def closed(outcome: dict[str, Any] | StoreError) -> None:
            row = {_MEMBER: member} if isinstance(outcome, StoreError) else outcome
            error = outcome if isinstance(outcome, StoreError) else None
            self._audit(
                AuditEvent.ADMINISTRATION,
                peer=by[0],
                act="close-connection",
                connection=number,
                member=row.get(_MEMBER),
                user=row.get("user"),
                remote=row.get("peer"),
                by=by[1],
                error=error,
            )
            answer(error or {"act": "close-connection", **row, "changed": True})

        if member is None:
            closed(self._close_here(number))
        elif self._members is None:
            answer(InvalidRequest("this process has no members: leave --member out"))
        else:
            question = {_CLOSE: number, _BY: by[0]}
            self._members.ask(question, lambda answers: closed(_closed(member, answers)), member)

    def answer(self, question: str, answer: Callable[[str], None]) -> None:
        """Answer the store service, which asks for an administrator."""

        def say(outcome: Any, key: str = _CLOSED) -> None:
            if isinstance(outcome, StoreError):
                outcome = {"error": type(outcome).__name__, "message": str(outcome)}
            else:
                outcome = {key: outcome}
            answer(json.dumps(outcome))

        content = json.loads(question)
        number = content.get(_CLOSE)
        if _CONNECTIONS in content:
            answer(json.dumps({_CONNECTIONS: self._rows_here()}))
        elif isinstance(number, int):
            name = f"{content.get(_BY, 'an administrator')}, by the store service"
            self.close(number, None, (name, None), say)
        elif isinstance(content.get(_LINKS), int):
            links = self._links_here(content[_LINKS], content.get(_LIMIT, _MOST_LINKS))
            say(links._asdict() if isinstance(links, LinkRows) else links, _LINKS)
        else:
            say(InvalidRequest(_UNKNOWN))

    def _rows_here(self) -> list[dict[str, Any]]:
        here = sorted(self._connections(), key=lambda connection: connection.number)
        return [_row(connection) for connection in here]

    def _links_here(self, number: int, limit: int) -> LinkRows | StoreError:
        connection = self._find(number)
        if isinstance(connection, StoreError):
            return connection
        rows = [link._asdict() for link in islice(connection.link_facts, limit)]
        return LinkRows(rows, connection.link_count - len(rows))

    def _close_here(self, number: int) -> dict[str, Any] | StoreError:
        connection = self._find(number)
        if isinstance(connection, StoreError):
            return connection
        row = _row(connection)
        connection.close_forced(_CLOSED_BY)
        return row

    def _find(self, number: int) -> ServedConnection | StoreError:
        missing = InvalidRequest(f"there is no connection {number}: see sparkstore connections")
        here = (connection for connection in self._connections() if connection.number == number)
        return next(here, missing)


def _closed(member: str, answers: MemberAnswers) -> dict[str, Any] | StoreError:
    row = _of(member, answers, _CLOSED)
    return row if isinstance(row, StoreError) else {**row, _MEMBER: member}


def _links(member: str, answers: MemberAnswers) -> LinkRows | StoreError:
    if answers.by_member.get(member, {}).get("message") == _UNKNOWN:
        text = f"member {member!r} is of an older release, which does not tell its links"
        return Unavailable(f"{text}: start it with this release")
    links = _of(member, answers, _LINKS)
    return links if isinstance(links, StoreError) else LinkRows(links["rows"], links["left_out"])


def _of(member: str, answers: MemberAnswers, key: str) -> Any | StoreError:
    """Return what a member answered that was asked alone, by its key."""
    content = answers.by_member.get(member)
    if content is not None and key in content:
        return content[key]
    if content is not None:
        return error_of(content.get("error"), content.get("message"))
    if answers.silent:
        text = f"member {member!r} did not answer: look whether the connection is there"
        return Unavailable(text)
    return InvalidRequest(f"there is no member {member!r} connected: see sparkstore connections")


def _row(connection: ServedConnection) -> dict[str, Any]:
    remote = connection.access.remote
    return {
        "connection": connection.number,
        "peer": f"{remote.host}:{remote.port}",
        "user": connection.login.principal.name,
        "tls": remote.tls,
        "container": connection.container_id,
        "links": connection.link_count,
        **connection.client._asdict(),
        "connected_at": connection.began_at_us,
        "open": connection.is_open and not connection.is_closed,
    }
