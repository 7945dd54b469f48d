"""Requests that somebody typed as SQL: one SELECT over the views of the root.

What may pass is decided by `sparkstore.embedded.typed_select`, as for `sparkstore sql`: one SELECT
over the views, without files, settings or changes. A process of its own answers it
(`limited_answers`), so time and memory have an end.

Decision: who may ask. The views show the bodies of all messages, also of those that were consumed,
of subscriptions and of others' queues for answers. Rows are not filtered by what their reader may
`read`: sums, links and transactions tell of queues, too. So where there are permissions, it takes
one rule that allows `admin` on every address (`#`), the permission to get at such queues. And it
takes the role `operator`: a query changes nothing, but it takes memory and processors from the
broker's machine, and a `monitor` is there for figures, asked by programs again and again.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from broker_shim.security.rules.rights import Act
from broker_shim.serve.http.bodies import Model
from broker_shim.serve.http.calls import Call
from broker_shim.serve.http.endpoint import API, OPERATOR, Endpoint
from broker_shim.serve.http.limited_answers import MOST_S, limited_answer
from broker_shim.serve.http.port.exchange import Response
from broker_shim.serve.http.refusals import HttpRefusal
from broker_shim.serve.http.table_reads import flushed
from sparkstore.cli.queries.limited_process import LimitedQuestion
from sparkstore.control.audit import AuditEvent

MOST_AT_ONCE = 2


class SqlQuestion(Model):
    """A SELECT over the views, in DuckDB's SQL; `as_of`: a time or `position=N`, by default now."""

    statement: Annotated[str, Meta(min_length=1, max_length=100_000)]
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1000
    as_of: str | None = None


class SqlColumn(Struct, kw_only=True):
    """A column of an answer; `type` is that of Arrow."""

    name: str
    type: str


class SqlAnswer(Struct, kw_only=True):
    """The rows of a query, each with a value for each column; `is_cut`: there are more."""

    columns: list[SqlColumn]
    is_cut: bool
    rows: list[dict[str, Any]]


class _Running:
    """How many queries run now, of this process. Used by the thread of the HTTP port."""

    count = 0


async def ask_views(call: Call) -> Response:
    """Answer one SELECT over the views, as `sparkstore sql` does."""
    await call.check_everywhere(Act.USE_ANOTHERS, "SQL shows every queue")
    error: str | None = None
    try:
        return await _run(call)
    except BaseException as reason:
        error = str(reason) or "the port was closed"
        raise
    finally:
        caller, statement = call.caller, call.body.statement
        audit = caller.access.guard.audit
        audit(
            AuditEvent.QUERY, peer=caller.peer, user=caller.user, statement=statement, error=error
        )


async def _run(call: Call) -> Response:
    if _Running.count >= MOST_AT_ONCE:
        text = f"{MOST_AT_ONCE} queries run now: try again when one has ended"
        raise HttpRefusal(429, text, {"Retry-After": "1"})
    _Running.count += 1
    try:
        root, asked = await flushed(call), call.body
        question = LimitedQuestion(
            str(root.path.absolute()), asked.statement, asked.limit, MOST_S, asked.as_of
        )
        return Response(await limited_answer(question, call))
    finally:
        _Running.count -= 1


ENDPOINTS = (
    Endpoint(
        "POST",
        API + "/sql",
        OPERATOR,
        ask_views,
        SqlAnswer,
        body=SqlQuestion,
        acts=(Act.USE_ANOTHERS,),
        only_reads=True,
    ),
)
